"""What `.gitignore` files leave out, compared with what git says of the same files."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrun.sync.file_selection import FileSelection
from distrun.sync.gitignore import IgnoreRules
from harness.examples import examples
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
LINES = st.lists(
    st.text(alphabet="ab/*!?[]-\\. ", min_size=1, max_size=8) | st.sampled_from(PATTERNS),
    max_size=4,
).map("\n".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("repository")
    for name in (*TREE, "a/b", "a/ab/a.b", "b/a/b"):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    git(top, "init", "-q")
    return top


def git(top: Path, *words: str, stdin: str = "") -> bytes:
    """Run git as if nobody had configured anything."""
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *words], cwd=top, env=env, check=True, capture_output=True, input=stdin.encode()
    ).stdout


def kept_by_git(top: Path) -> set[bytes]:
    listed = git(top, "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore")
    return set(listed.split(b"\0")) - {b""}


def sent(top: Path) -> set[bytes]:
    manifest = FileSelection(str(top), [str(top)]).manifest()
    return {file.path.encode("utf-8", "surrogateescape") for file in manifest.files}


def same_as_git(top: Path, ignoring: dict[str, str]) -> None:
    """`ignoring` is what stands in the `.gitignore` of some folders."""
    for folder, text in ignoring.items():
        (top / folder / ".gitignore").write_bytes(text.encode())
    try:
        assert sent(top) == kept_by_git(top), ignoring
    finally:
        for folder in ignoring:
            (top / folder / ".gitignore").unlink()


def test_each_pattern_means_what_it_means_to_git(repository: Path) -> None:
    for pattern in PATTERNS:
        same_as_git(repository, {"": pattern})


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 8 + "*b", "**/" * 30 + "b", "a*" * 120 + "/b", "**/*a" * 60 + "b",
        "[!b]*" * 80 + "b", "*" * 4000 + "b", "**/a*/**/a*/**/a*/**/b", "?*" * 100 + "b",
    ],
    ids=lambda pattern: pattern[:20],
)  # fmt: skip
def test_matching_takes_linear_time(tmp_path: Path, pattern: str) -> None:
    """As a regular expression, the first one took 20 s for one name."""
    folder = tmp_path / ("a" * 250)
    folder.mkdir()
    for number in range(20):
        (folder / ("a" * 240 + str(number))).touch()
    (tmp_path / ".gitignore").write_text(pattern)
    before = time.process_time()
    assert len(sent(tmp_path)) == 21
    assert time.process_time() - before < 2


PARTS = (
    *("*",) * 5, *("**",) * 3, *("**/",) * 3, *("/",) * 3, *("a",) * 4, *("b",) * 3, "ab", ".", "]",
    "?", "?", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[!]a]", "[[:alpha:]]", "[![:alpha:]b]",
    "[a/b]", "[-a]", "[\\]]", "\\*", "\\a", "[", "***", "-", "!",
)  # fmt: skip
NAMES = ("a", "b", "ab", "ba", "aab", "abab", "a.b", "b]", "c", "-a", "*", "aaaaaaab", "b[a")


def test_random_patterns_mean_what_they_mean_to_git(tmp_path: Path, chooser: random.Random) -> None:
    """A file with random patterns in each of many folders, and the same random paths below each."""
    git(tmp_path, "init", "-q")
    paths = {"/".join(chooser.choices(NAMES, k=chooser.randint(1, 5))) for _ in range(40)}
    written = {}
    for number in range(150):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = ["".join(chooser.choices(PARTS, k=chooser.randint(1, 14))) for _ in range(2)]
        written[str(number)] = "\n".join(lines)
        (folder / ".gitignore").write_text(written[str(number)])
    queries = [f"{folder}/{path}" for folder in written for path in paths]
    ignored = git(
        *(tmp_path, "check-ignore", "--no-index", "--stdin", "-z"), stdin="\0".join(queries)
    )
    found = {query for query in queries if excludes(tmp_path, query)}
    different = found ^ {path.decode() for path in ignored.split(b"\0") if path}
    assert not different, {each: written[each.partition("/")[0]] for each in different}
    assert len(queries) // 20 < len(found) < len(queries), "most patterns exclude all or nothing"


def excludes(top: Path, path: str) -> bool:
    """Whether the rules of the path's first folder exclude it, or a folder that it is in."""
    folder, *names = path.split("/")
    above = os.fsencode(top / folder)
    rules = IgnoreRules().within(above)
    for name in names[:-1]:
        above += b"/" + os.fsencode(name)
        if rules.excludes(above, is_folder=True):
            return True
    return rules.excludes(above + b"/" + os.fsencode(names[-1]), is_folder=False)


@settings(max_examples=examples(60))
@given(top=LINES, doc=LINES)
def test_so_do_patterns_of_several_files_together(repository: Path, top: str, doc: str) -> None:
    same_as_git(repository, {"": top, "doc": doc})


def test_files_above_the_scripts_folder_count_within_a_repository(repository: Path) -> None:
    repository.joinpath(".gitignore").write_text("*.py\n/doc/deep/build\nsrc/\n")
    try:
        assert sent(repository / "doc") == {b"a.log"}
        # Who names a folder wants it, also one that the repository does not keep.
        assert {b"x.py", b"a b.py", b"deep/logs/1"} <= sent(repository / "src")
    finally:
        repository.joinpath(".gitignore").unlink()
