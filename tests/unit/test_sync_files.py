"""Which files other hosts are sent, and as what."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from distrun.errors import InvalidSpecError
from distrun.frozen import replace
from distrun.spec.model import HostSpec, Spec, Sync
from distrun.sync import file_selection
from distrun.sync.file_selection import FileSelection, select_files
from distrun.sync.manifest import Manifest
from distrun.sync.unsent_files import file_beside_script, find_unsent_reads, missing_file

from .plans import script_in, spec_of

NEWLINE = b"a\nb \xff'\"$(x).py"


def of_script(folder: Path, **program: Any) -> Spec:
    return spec_of(program=script_in(folder, **program))


def names(manifest: Manifest) -> set[bytes]:
    return {file.path.encode("utf-8", "surrogateescape") for file in manifest.files}


def test_files_of_every_kind_are_listed_with_what_identifies_them(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o6755)  # whoever owns the copy gives nobody their rights
    (tmp_path / "none.py").touch(0o600)
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "run.pyc").touch()
    tmp_path.joinpath(os.fsdecode(NEWLINE)).write_text("odd")
    with socket.socket(socket.AF_UNIX) as door:
        here = os.getcwd()
        os.chdir(tmp_path)  # a socket's path has to be short
        try:
            door.bind("door")
        finally:
            os.chdir(here)
        os.mkfifo(tmp_path / "pipe")
        made = FileSelection(str(tmp_path), [str(tmp_path)]).manifest()
    assert names(made) == {b"run.sh", b"none.py", NEWLINE}
    by_name = {file.path: file for file in made.files}
    assert by_name["run.sh"].mode == 0o755
    assert by_name["none.py"].size == 0
    assert by_name["run.sh"].digest == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert made.folders == ("empty", "empty/inner")
    assert made.size == 3 + len("#!/bin/sh\n")


def test_links_stay_links_where_they_lead_to_what_is_sent(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    for folder in (top / "src", outside / "lib"):
        folder.mkdir(parents=True)
    (top / "src" / "a.py").write_text("a")
    (outside / "shared.py").write_text("shared")
    (outside / "lib" / "b.py").write_text("b")
    (outside / "lib" / ".gitignore").write_text("*.log")
    (outside / "lib" / "x.log").write_text("x")
    (top / "near").symlink_to("src/a.py")
    (top / "absolute").symlink_to(top / "src")
    (top / "src" / "up").symlink_to("..")
    (top / "nowhere").symlink_to("gone")
    (top / "lost").symlink_to("/gone/for/ever")
    (top / "shared.py").symlink_to(outside / "shared.py")
    (top / "lib").symlink_to(outside / "lib")
    (outside / "lib" / "again").symlink_to(top / "lib")
    made = FileSelection(str(top), [str(top)]).manifest()
    links = {link.path: link.target for link in made.links}
    assert links["near"] == "src/a.py"
    assert links["absolute"] == "src"
    assert links["src/up"] == ".."
    assert links["nowhere"] == "gone"
    assert "lost" not in links
    assert names(made) == {b"src/a.py", b"shared.py", b"lib/b.py", b"lib/.gitignore"}


def links_of(manifest: Manifest) -> dict[str, str]:
    return {link.path: link.target for link in manifest.links}


def test_a_link_to_what_is_not_sent_is_replaced_by_it(tmp_path: Path) -> None:
    top, home = tmp_path / "top", tmp_path / "top" / "home"
    for folder in (top / "ck" / "old", home):
        folder.mkdir(parents=True)
    (top / "ck" / "5.h5").write_text("best")
    (top / "ck" / "old" / "4.h5").write_text("old")
    (top / "ck" / "old" / "here").symlink_to(".")
    (home / "log").touch()
    (top / ".gitignore").write_text("ck/\n")
    (top / "best.h5").symlink_to("ck/5.h5")
    (top / "also").symlink_to("best.h5")
    (top / "old").symlink_to(top / "ck" / "old")
    (top / "log").symlink_to("home/log")
    made = FileSelection(str(top), [str(top)], [str(home)]).manifest()
    assert names(made) == {b".gitignore", b"best.h5", b"old/4.h5"}
    assert links_of(made) == {"also": "best.h5", "old/here": "."}


def test_what_lies_below_a_link_comes_by_way_of_it(tmp_path: Path) -> None:
    (tmp_path / "releases" / "1").mkdir(parents=True)
    (tmp_path / "releases" / "1" / "train.py").write_text("x")
    (tmp_path / "current").symlink_to("releases/1")
    (tmp_path / "link.py").symlink_to("releases/1/train.py")
    inside = {"target": str(tmp_path / "current" / "train.py"), "sync": Sync.PATHS}
    cases: list[dict[str, Any]] = [
        {"workdir": str(tmp_path / "current"), "target": str(tmp_path / "link.py")},
        {**inside, "sync_paths": (str(tmp_path),)},
        {**inside, "sync_paths": (str(tmp_path), str(tmp_path / "current"))},
    ]
    for case in cases:
        made = select_files(of_script(tmp_path, **case)).manifest()
        assert names(made) == {b"releases/1/train.py"}
        assert links_of(made) == {"current": "releases/1", "link.py": "releases/1/train.py"}
        assert made.folders == ("releases",)
    (tmp_path / ".gitignore").write_text("releases/\n")
    for case in cases:
        made = select_files(of_script(tmp_path, **case)).manifest()
        assert b"current/train.py" in names(made)
        assert not made.folders


def test_a_link_that_goes_by_the_tops_own_name_stays_within_the_copy(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "src").mkdir(parents=True)
    (top / "y").touch()
    (top / "x").symlink_to("../top/y")
    (top / "src" / "x").symlink_to("../../top/src/../y")
    (top / "gone").symlink_to("../top/z")
    made = FileSelection(str(top), [str(top)]).manifest()
    assert links_of(made) == {"x": "y", "src/x": "../y", "gone": "z"}


def test_more_than_100_mb_are_refused_with_what_takes_them_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "big.bin").touch()
    os.truncate(tmp_path / "data" / "big.bin", file_selection.MOST_BYTES)
    assert select_files(of_script(tmp_path)).size == file_selection.MOST_BYTES
    (tmp_path / "one").write_text("1")
    with pytest.raises(InvalidSpecError) as caught:
        select_files(of_script(tmp_path))
    assert " are 100,000,001 bytes, and no more than 100 MB are sent" in caught.value.message
    assert "data 100 MB" in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert "sync: [train.py, src]" in str(caught.value.hint)
    # Who lists paths knows what is in them.
    paths = (str(tmp_path / "data"), str(tmp_path / "one"))
    listed = of_script(tmp_path, sync=Sync.PATHS, sync_paths=paths)
    assert select_files(listed).count == 3  # the script always goes
    (tmp_path / ".gitignore").write_text("/data/\n")
    assert select_files(of_script(tmp_path)).size < 100


def test_listed_paths_are_sent_with_the_script_and_nothing_else(tmp_path: Path) -> None:
    for name in ("job/train.py", "job/other.py", "job/ignored/x", "data/d.csv", "data/.git/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "job" / ".gitignore").write_text("ignored\n")
    made = select_files(
        of_script(
            tmp_path / "job",
            sync=Sync.PATHS,
            sync_paths=(str(tmp_path / "data"), str(tmp_path / "job" / "ignored")),
            sync_base=str(tmp_path),
        )
    ).manifest()
    assert names(made) == {b"job/train.py", b"data/d.csv", b"job/ignored/x"}


def test_the_script_is_sent_whatever_the_rules_say_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "other.py").write_text("x")
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert names(select_files(of_script(tmp_path)).manifest()) == {b".gitignore", b"train.py"}


def test_a_file_that_is_gone_again_is_no_error_and_one_that_cannot_be_read_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "swap").write_text("x")
    (tmp_path / "grows").write_text("12345")
    found = FileSelection(str(tmp_path), [str(tmp_path)])
    (tmp_path / "swap").unlink()
    (tmp_path / "grows").write_text("1234567")
    made = found.manifest()
    assert names(made) == {b"train.py", b"grows"}
    assert {file.path: file.size for file in made.files}["grows"] == 5
    (tmp_path / "train.py").unlink()
    (tmp_path / "train.py").mkdir()
    with pytest.raises(InvalidSpecError, match=r"train\.py cannot be sent: Is a directory"):
        found.manifest()


def test_the_records_of_jobs_are_never_sent(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    (tmp_path / "home" / "jobs" / "log").touch()
    found = select_files(of_script(tmp_path), [str(tmp_path / "home" / "jobs")])
    assert names(found.manifest()) == {b"train.py"}


@pytest.mark.parametrize("part", ["a", "a*", "[a-z]*?*", "**/"])
def test_a_pattern_that_is_longer_than_any_path_is_refused_at_once(
    tmp_path: Path, part: str
) -> None:
    (tmp_path / "train.py").touch()
    ignored = tmp_path / ".gitignore"
    ignored.write_text(f"# {'x' * 5000}\n{part * (200_000 // len(part))}\n")
    before = time.process_time()
    with pytest.raises(InvalidSpecError, match=r"\.gitignore:2: the pattern has 200 kB"):
        FileSelection(str(tmp_path), [str(tmp_path)])
    ignored.write_text(f"{part * (4000 // len(part))}b\n" * 64)
    assert names(FileSelection(str(tmp_path), [str(tmp_path)]).manifest()) >= {b"train.py"}
    assert time.process_time() - before < 4


# Which files a program reads that are not sent ----------------------------------------------------


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Of a job on another host, whose folder has files that are sent and files that are not."""
    (tmp_path / ".gitignore").write_text("data\n*.csv\n")
    (tmp_path / "data").mkdir()
    for name in ("data/x.npz", "big.csv", "labels.txt", "train.py"):
        (tmp_path / name).touch()
    return spec_of(program=script_in(tmp_path), hosts=(HostSpec(name="h1"),))


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("np.load('data/x.npz')", [1]),
        ("a = 1\nopen('big.csv')\nopen('./data/x.npz', 'rb')", [2, 3]),
        ("pd.read_csv('big.csv', sep=',')", [1]),
        ("tf.data.TextLineDataset('big.csv')", [1]),
        ("np.load('labels.txt')", []),  # is sent
        ("np.load('data/y.npz')", []),  # does not exist here either
        ("open('big.csv', 'w')", []),
        ("open('big.csv', mode)", []),
        ("save(x, 'big.csv')\nload('big.csv')", []),  # the task may have made it itself
        ("print('big.csv')", []),
        ("load(", []),
    ],
)
def test_a_file_that_a_script_reads_and_that_is_not_sent_is_warned_of(
    script: str, found: list[int], spec: Spec
) -> None:
    Path(spec.program.target).write_text(script)
    assert [each.line for each in find_unsent_reads(spec)] == found
    here = replace(spec, hosts=(HostSpec(),))
    assert find_unsent_reads(here) == []


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npz'", "data/x.npz"),
        ("NotFoundError: {{function_node f}} big.csv; No such file or directory [Op:I]", "big.csv"),
        ("OSError: Unable to open file (name = 'data/x.npz', errno = 2, flags = 0)", "data/x.npz"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'labels.txt'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.npz'", ""),
        ("ValueError: bad", ""),
    ],
)
def test_an_error_names_the_file_that_is_missing_on_a_host(
    error: str, name: str, spec: Spec
) -> None:
    assert missing_file(spec, error) == name


def test_a_file_that_is_missing_where_tasks_work_may_be_beside_the_script(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in ("train.py", "data.csv", "both.csv"):
        (source / name).touch()
    (tmp_path / "both.csv").touch()
    spec = spec_of(program=script_in(source, workdir=str(tmp_path)))
    error = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    assert file_beside_script(spec, error.format("data.csv")) == str(source / "data.csv")
    for name in ("none.csv", "both.csv", "/data.csv"):
        assert file_beside_script(spec, error.format(name)) == ""
    assert file_beside_script(spec, "ValueError: data.csv") == ""
