"""Which files other hosts are sent, and as what."""

import hashlib
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from harness.parts.lint import check_program
from harness.parts.settings import HostSpec, bundled_jobs
from harness.parts.spec import Spec, Sync
from harness.parts.sync import (
    FileSelection,
    Manifest,
    file_beside_script,
    file_selection,
    missing_file,
    select_files,
)
from harness.parts.top import InvalidSpecError, replace
from harness.plans import script_in, spec_of
from harness.tables import read_table

NEWLINE = b"a\nb \xff'\"$(x).py"


def of_script(folder: Path, **program: Any) -> Spec:
    return spec_of(program=script_in(folder, **program))


def names(manifest: Manifest) -> set[bytes]:
    return {file.path.encode("utf-8", "surrogateescape") for file in manifest.files}


def links_of(manifest: Manifest) -> dict[str, str]:
    return {link.path: link.target for link in manifest.links}


def make(top: Path, paths: str, **links: Path | str) -> None:
    """Make files that contain their own paths, and links to what is named."""
    for path in paths.split():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)
    for name, target in links.items():
        (top / name).symlink_to(target)


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
    assert (by_name["run.sh"].mode, by_name["none.py"].size) == (0o755, 0)
    assert by_name["run.sh"].digest == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert made.folders == ("empty", "empty/inner")
    assert made.size == 3 + len("#!/bin/sh\n")


def test_links_stay_links_where_they_lead_to_what_is_sent(tmp_path: Path) -> None:
    top, lib = tmp_path / "top", tmp_path / "outside" / "lib"
    make(top, "src/a.py", near="src/a.py", absolute=top / "src", nowhere="gone", lost="/gone/ever")
    make(top, "", lib=lib, shared=lib.parent / "shared.py")
    make(top / "src", "", up="..")
    make(lib, "b.py x.log ../shared.py", again=top / "lib")
    (lib / ".gitignore").write_text("*.log")
    made = FileSelection(str(top), [str(top)]).manifest()
    links = links_of(made)
    expected = {"near": "src/a.py", "absolute": "src", "src/up": "..", "nowhere": "gone"}
    assert {name: links.get(name) for name in expected} == expected
    assert "lost" not in links
    assert names(made) == {b"src/a.py", b"shared", b"lib/b.py", b"lib/.gitignore"}


def test_a_link_to_what_is_not_sent_is_replaced_by_it(tmp_path: Path) -> None:
    old = tmp_path / "ck" / "old"
    make(tmp_path, "ck/5.h5 ck/old/4.h5 home/log", best="ck/5.h5", also="best", log="home/log")
    make(tmp_path, "a.log kept/b.log")
    make(tmp_path, "", old=old)
    make(old, "", here=".")
    (tmp_path / ".gitignore").write_text("\ufeffck/\n*.log\n")
    (tmp_path / "kept" / ".gitignore").write_text("!b.log\n")
    home = tmp_path / "home"
    made = FileSelection(str(tmp_path), [str(tmp_path)], [str(home)]).manifest()
    kept = {b"kept/.gitignore", b"kept/b.log"}
    assert names(made) == {b".gitignore", b"best", b"old/4.h5", *kept}
    assert links_of(made) == {"also": "best", "old/here": "."}


def test_what_lies_below_a_link_comes_by_way_of_it(tmp_path: Path) -> None:
    make(tmp_path, "releases/1/train.py", current="releases/1", link="releases/1/train.py")
    inside = {"target": str(tmp_path / "current" / "train.py"), "sync": Sync.PATHS}
    cases: list[dict[str, Any]] = [
        {"workdir": str(tmp_path / "current"), "target": str(tmp_path / "link")},
        {**inside, "sync_paths": (str(tmp_path),)},
        {**inside, "sync_paths": (str(tmp_path), str(tmp_path / "current"))},
    ]
    for case in cases:
        made = select_files(of_script(tmp_path, **case)).manifest()
        assert names(made) == {b"releases/1/train.py"}
        assert links_of(made) == {"current": "releases/1", "link": "releases/1/train.py"}
        assert made.folders == ("releases",)
    (tmp_path / ".gitignore").write_text("releases/\n")
    for case in cases:
        made = select_files(of_script(tmp_path, **case)).manifest()
        assert b"current/train.py" in names(made)
        assert not made.folders


def test_a_link_that_goes_by_the_tops_own_name_stays_within_the_copy(tmp_path: Path) -> None:
    top = tmp_path / "top"
    make(top, "y src/y", x="../top/y", gone="../top/z")
    make(top / "src", "", x="../../top/src/../y")
    make(top, "deep/y deep/inner/z", way="deep/inner", other="way/../y")
    made = FileSelection(str(top), [str(top)]).manifest()
    named = {"x": "y", "src/x": "../y", "gone": "z"}
    assert links_of(made) == {**named, "way": "deep/inner", "other": "deep/y"}


def test_more_than_100_mb_are_refused_with_what_takes_them_and_what_to_do(tmp_path: Path) -> None:
    make(tmp_path, "train.py data/big.bin")
    (tmp_path / "train.py").write_text("")
    os.truncate(tmp_path / "data" / "big.bin", file_selection.MOST_BYTES)
    assert select_files(of_script(tmp_path)).size == file_selection.MOST_BYTES
    (tmp_path / "one").write_text("1")
    with pytest.raises(InvalidSpecError) as caught:
        select_files(of_script(tmp_path))
    assert " are 100,000,001 bytes, and no more than 100 MB are sent" in caught.value.message
    assert "data 100 MB" in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert "sync: [train.py, src]" in str(caught.value.hint)
    with pytest.raises(InvalidSpecError) as caught:
        select_files(of_script(tmp_path, results=("data",)))
    assert "sent, too, unless a .gitignore names it" in str(caught.value.hint)
    # Who lists paths knows what is in them.
    paths = (str(tmp_path / "data"), str(tmp_path / "one"))
    listed = of_script(tmp_path, sync=Sync.PATHS, sync_paths=paths)
    assert select_files(listed).count == 3  # the script always goes
    (tmp_path / ".gitignore").write_text("/data/\n")
    assert select_files(of_script(tmp_path)).size < 100


def test_listed_paths_are_sent_with_the_script_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path, "job/train.py job/other.py job/ignored/x data/d.csv data/.git/c")
    (tmp_path / "job" / ".gitignore").write_text("ignored\n*.py\n")
    paths = (str(tmp_path / "data"), str(tmp_path / "job" / "ignored"))
    about = {"sync": Sync.PATHS, "sync_paths": paths, "sync_base": str(tmp_path)}
    made = select_files(of_script(tmp_path / "job", **about)).manifest()
    assert names(made) == {b"job/train.py", b"data/d.csv", b"job/ignored/x"}
    # Without a list, it is sent whatever the rules say of it.
    made = select_files(of_script(tmp_path / "job")).manifest()
    assert names(made) == {b".gitignore", b"train.py"}
    main = bundled_jobs()["mnist"]
    made = select_files(of_script(main.parent, target=str(main), sync=Sync.PATHS)).manifest()
    assert names(made) >= {b"main.py", b"mnist_job/loop.py"}, "a bundled job is sent whole"


def test_a_file_that_is_gone_is_no_error_and_one_that_cannot_be_read_is(tmp_path: Path) -> None:
    make(tmp_path, "train.py swap grows")
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
    make(tmp_path, "train.py home/jobs/log")
    found = select_files(of_script(tmp_path), [str(tmp_path / "home" / "jobs")])
    assert names(found.manifest()) == {b"train.py"}


@pytest.mark.parametrize("part", ["a", "a*", "[a-z]*?*", "**/"])
def test_a_pattern_longer_than_any_path_is_refused_at_once(tmp_path: Path, part: str) -> None:
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
    job = tmp_path / "job"
    make(tmp_path, "settings.yaml nets/__init__.py")
    make(job, "data/x.npz big.csv labels.txt train.py")
    (job / ".gitignore").write_text("data\n*.csv\n")
    return spec_of(program=script_in(job), hosts=(HostSpec(name="h1"),))


TABLE = Path(__file__).with_name("missing_files.txt")


@pytest.mark.parametrize(("script", "found"), read_table(TABLE, "not sent").items())
def test_a_file_that_is_not_sent_is_warned_of(script: str, found: str, spec: Spec) -> None:
    Path(spec.program.target).write_text(script)
    here = replace(spec, hosts=(HostSpec(),))
    for made, expected in ((spec, found), (here, "")):
        warnings = check_program(made)
        lines = [str(each.line) for each in warnings if "not sent it" in each.message]
        assert lines == expected.split()


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"


@pytest.mark.parametrize(("error", "name"), read_table(TABLE, "errors").items())
def test_an_error_names_the_file_missing_on_a_host(
    error: str, name: str, spec: Spec, tmp_path: Path
) -> None:
    assert missing_file(spec, error) == name.replace("TOP", str(tmp_path))


def test_a_file_that_is_missing_where_tasks_work_may_be_beside_the_script(tmp_path: Path) -> None:
    make(tmp_path, "src/train.py src/data.csv src/both.csv both.csv")
    source = tmp_path / "src"
    spec = spec_of(program=script_in(source, workdir=str(tmp_path)))
    assert file_beside_script(spec, MISSING.format("data.csv")) == str(source / "data.csv")
    for name in ("none.csv", "both.csv", "/data.csv"):
        assert file_beside_script(spec, MISSING.format(name)) == ""
    assert file_beside_script(spec, "ValueError: data.csv") == ""
