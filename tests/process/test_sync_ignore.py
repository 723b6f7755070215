"""What `.gitignore` files leave out, compared with what git says of the same files."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.command import write_program
from harness.parts.sync import FileSelection, gitignore
from harness.requirements import missing

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason=str(missing(["git"])))

TREE = (
    "a.log", "a.py", "b.txt", "build/out.bin", "build/keep/k.py", "data/raw/x.csv", "data/y.csv",
    "doc/a.log", "doc/deep/er/a.py", "doc/deep/build/z", "foo/bar/baz", "foo/bar.py", "logs",
    "src/a b.py", "src/[x].py", "src/x.py", "src/deep/logs/1", "#odd", "!odd", "trail ", "q?.py",
    "é.txt", "src/back\\slash",
)  # fmt: skip
PATTERNS = (
    # What people write.
    "*.log", "*.log\n!a.log", "/a.log", "build/", "build", "/build", "**/build", "doc/**/a.log",
    "doc/**", "/data/*\n!/data/y.csv", "data/\n!data/y.csv", "*.csv\n!data/raw/", "logs/", "logs",
    "/*\n!/src/", "*\n!*/\n!*.py", "/*\n!/foo\n/foo/*\n!/foo/bar", "**", "**/", "/**/x.py", "src",
    # What git's documentation tells of.
    "\\#odd", "#odd", "\\!odd", "!odd", "trail ", "trail\\ ", "a b.py", "[ab].*", "[!a]*.py",
    "src/[[]x].py", "src/\\[x\\].py", "q\\?.py", "q?.py", "[a-", "[[:alpha:]].py", "doc/*/a.py",
    "*/a.log", "foo/*", "foo/**/baz", "**/bar", "bar/baz", "a.py\r\nb.txt\r", "src/back\\\\slash",
    "/", "//", "", "!", "\\", "é.txt", "foo/**b*", "***", "a**y", "\ufeffa.py", "  ", "!src/x.py",
)  # fmt: skip


def git(top: Path, *words: str) -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=top, env=env, check=True, capture_output=True).stdout


def select(top: Path) -> FileSelection:
    return FileSelection(str(top), [str(top)])


def sent(top: Path) -> set[bytes]:
    return {os.fsencode(file.path) for file in select(top).manifest().files}


def sent_without_git(top: Path) -> set[bytes]:
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("PATH", "/nowhere")
        return sent(top)


def test_each_pattern_means_what_it_means_to_git(tmp_path: Path) -> None:
    """Without git, where it has neither a backslash nor a class of characters."""
    for name in (*TREE, "a/b", "a/ab/a.b", "b/a/b"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    git(tmp_path, "init", "-q")
    for pattern in PATTERNS:
        (tmp_path / ".gitignore").write_bytes(pattern.encode())
        listed = git(tmp_path, "ls-files", "-z", "-o", "--exclude-per-directory=.gitignore")
        kept = set(listed.split(b"\0")) - {b""}
        assert sent(tmp_path) == kept, pattern
        is_simple = "\\" not in pattern and "[:" not in pattern
        assert not is_simple or sent_without_git(tmp_path) == kept, pattern


def test_git_decides_in_a_work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    for name in ("t.log", "u.log", "x.py", "build/y", "empty/of/", "runs/r.log", "inner/n.log",
                 "inner/n.csv", "local", "pkg/a.py", "../other/z.csv"):  # fmt: skip
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text(name)
    (top / ".gitignore").write_text("*.log\nbuild/\n")
    (top / "inner" / ".gitignore").write_text("*.csv\n")
    (top / "to-kept").symlink_to("pkg")
    (top / "to-ignored").symlink_to("build")
    (top / "to-other").symlink_to(other)
    for folder in (top, top / "inner", other):
        git(folder, "init", "-q")
    (top / ".git" / "info" / "exclude").write_text("local\n")
    git(top, "add", "-f", "t.log")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))  # as in a hook of another repository
    found = select(top)
    made = found.manifest()
    assert {os.fsencode(file.path) for file in made.files} == {
        b".gitignore", b"t.log", b"x.py", b"pkg/a.py", b"inner/.gitignore", b"inner/n.log",
        b"to-ignored/y", b"to-other/z.csv",
    }  # fmt: skip
    assert {link.path: link.target for link in made.links} == {"to-kept": "pkg"}
    assert made.folders == ("empty", "empty/of")
    assert found.failures == []


def test_a_folder_that_is_ignored_as_a_whole_is_sent(tmp_path: Path) -> None:
    """Who names a folder wants it, also if git keeps one file of it."""
    (tmp_path / "out").mkdir()
    for name in ("train.py", "a.log", ".gitkeep"):
        (tmp_path / "out" / name).touch()
    (tmp_path / "out" / ".gitignore").write_text("*.log\n")
    (tmp_path / ".gitignore").write_text("out/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "out/.gitkeep")
    for send in (sent, sent_without_git):
        assert send(tmp_path / "out") == {b"train.py", b".gitkeep", b".gitignore"}


GITS = {
    "missing": ("", "it is not installed"),
    "fails": ("echo 'fatal: dubious ownership' >&2; echo x >&2; exit 128", "fatal: dubious owner"),
    "hangs at its end": ("sleep 600 >&2 & exit 0", "it did not answer within 0.5 s"),
}


@pytest.mark.parametrize("name", GITS)
def test_without_answers_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, why = GITS[name]
    monkeypatch.setattr(gitignore, "_GIT_SECONDS", 0.5)
    programs, top = tmp_path / "bin", tmp_path / "top"
    programs.mkdir()
    if text:
        write_program(programs / "git", f"#!/bin/sh\nPATH={os.environ['PATH']}\n{text}\n")
    monkeypatch.setenv("PATH", str(programs))
    for folder in (".git", "inner/.git"):
        (top / folder).mkdir(parents=True)
    for file in ("train.py", "a.log", "inner/b.log"):
        (top / file).touch()
    (top / ".gitignore").write_text("*.log\n")
    found = select(top)
    assert {file.path for file in found.manifest().files} == {".gitignore", "train.py"}
    (said,) = found.failures
    assert said.startswith(f"git cannot list the files of {top} ({why}")
