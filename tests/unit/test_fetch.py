"""Where fetched files go, what hosts may say, and that nothing is written outside the folder."""

import contextlib
import errno
import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from harness.parts.agent import Loop, written_files
from harness.parts.hosts import FileSource, Found, Links, is_plain
from harness.parts.job import events
from harness.parts.protocol import FileRead, FileReadEnd, FilesWritten, ReadFile
from harness.parts.records import EventLog, JobFolder
from harness.parts.spec import loader
from harness.parts.supervisor import Fetch, Fetched, File, ReceivedTree, clean_patterns, place
from harness.parts.top import UsageError
from harness.values import not_none


def found(size: int = 1, changed: int = 1) -> Found:
    return Found(size, changed, size, 0o750)


@pytest.mark.parametrize(
    ("hosts", "digests", "targets"),
    [
        ({"a": {"x": found()}, "b": {"x": found()}}, {}, ["x"]),  # a file system of both
        ({"a": {"x": found(1)}, "b": {"x": found(2)}}, {}, ["a/x", "b/x"]),
        ({"a": {"x": found()}, "b": {"x": found(1, 2)}}, {"a": "1", "b": "1"}, ["x"]),
        ({"a": {"x": found()}, "b": {"x": found(1, 2)}}, {"a": "1", "b": "2"}, ["a/x", "b/x"]),
        ({"a": {"x": found()}, "b": {"x/y": found()}}, {}, ["a/x", "b/x/y"]),
        ({"a": {"x": found(1), "b/x": found()}, "b": {"x": found(2)}}, {}, ["a/x", "b/x"]),
    ],
)  # fmt: skip
def test_files_that_differ_go_to_the_folders_of_their_hosts(
    hosts: dict[str, dict[str, Found]], digests: dict[str, str], targets: list[str]
) -> None:
    files, left_out = place(hosts, {(label, "x"): each for label, each in digests.items()})
    assert [each.target for each in files] == targets
    assert len(set(targets)) == len(targets)
    assert bool(left_out) is ("b/x" in hosts["a"])


READ_ONLY = OSError(errno.EROFS, "Read-only file system")
NAMES = ("", "/etc/passwd", "..", "a/../../b", "a//b", "a/", ".", "a\0b", "a" * 256, "\ud800", 5)
SIZES: tuple[list[Any], ...] = ([], [1] * 3, [-1, 1, 1, 1], [1.0] * 4, [1 << 80] * 4, [True] * 4)


@pytest.mark.parametrize(
    "entry", [*([name, 1, 1, 1, 1] for name in (*NAMES, None)), *(["x", *size] for size in SIZES)]
)
def test_names_that_lead_elsewhere_and_sizes_that_cannot_be_are_left_out(entry: list[Any]) -> None:
    assert is_plain(entry[0]) is (entry[0] == "x")
    source = listed(entry)
    assert source.files == [{}]
    assert entry[0] == "x" or len(source.left_out) == 1


def listed(entry: list[Any]) -> FileSource:
    reach: Any = SimpleNamespace(connect_timeout=10.0)
    source = FileSource("h1", reach, Links(Loop(), "job-a"))
    source.files = [{}]
    assert source._receive(FilesWritten(0, [entry], [], last=False))
    assert not source._receive(FilesWritten(5, [], [], last=False))
    assert not source._receive(FileRead(0, b"not asked"))
    assert not source._receive(FileReadEnd(0, 0, "", 0))
    return source


def test_nothing_is_written_through_a_link_or_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "link").symlink_to(tmp_path / "outside")
    tree = ReceivedTree(str(tmp_path / "back"))
    with pytest.raises(OSError, match="Not a directory"):
        tree.open_part("link/x", "h1", 1, 1, 0)
    part = tree.open_part("deep/x", "h1", 4, 10**9, 0)
    with pytest.raises(OSError, match="another fetch is copying it"):
        tree.open_part("deep/x", "h1", 4, 10**9, 0)
    with pytest.raises(OSError, match="Protocol"):
        part.write(2, b"more than it said")
    part.write(0, b"ab")
    part.close()
    assert tree.find("deep/x") is None
    again = tree.open_part("deep/x", "h1", 4, 10**9, 0)
    assert again.received == 2
    again.close()
    tree = ReceivedTree(tree.path)
    other = tree.open_part("deep/x", "h1", 4, 2 * 10**9, 0o4500)  # it has changed meanwhile
    assert other.received == 0
    other.write(2, b"d")
    other.finish()
    written = tmp_path / "back" / "deep" / "x"
    assert written.read_bytes() == b"\0\0d\0"
    assert (written.stat().st_mtime, written.stat().st_mode & 0o7777) == (2, 0o700)
    assert (os.listdir(written.parent), os.listdir(tmp_path / "outside")) == (["x"], [])
    with mock.patch("os.listdir", side_effect=OSError):  # it may have 100,000 files
        tree.open_part("deep/y", "h1", 4, 1, 0).discard()


@pytest.mark.parametrize("pattern", ["/etc", "../x", "a/../../b"])
def test_patterns_stay_in_the_working_folder(pattern: str) -> None:
    with pytest.raises(UsageError, match="not a path below"):
        clean_patterns([pattern])
    assert clean_patterns(["./a/", "*.h5"]) == ["a", "*.h5"]
    assert clean_patterns([".", "a"]) == []
    for path, given in (("a.h5", "**/*.h5"), ("out/b.h5", "out/**/*.h5"), ("a[1]", "a[1]")):
        assert any(fnmatchcase(path, each) for each in clean_patterns([given])), path


@pytest.mark.parametrize(
    ("size", "changed", "comes"), [(4, 1, True), (9, 2, True), (4, 2, False), (3, 2, False)]
)
def test_a_file_that_has_changed(tmp_path: Path, size: int, changed: int, comes: bool) -> None:
    job: Any = SimpleNamespace(job_id="job-a")
    spec: Any = None
    fetch = Fetch(job, spec, [], str(tmp_path), lambda _: False, lambda *_: None)
    file = File("h1", "x", found(4), "x")
    part = not_none(fetch._open_part(file))
    fetch._parts.append(part)
    part.write(0, b"1234")
    fetch._end(file, part, FileReadEnd(size, changed, "", 0))
    assert os.listdir(tmp_path) == ["x"] * comes
    now = Fetched(folder="", files=(), new=frozenset(), left_out=(*fetch._left_out,), failures={})
    assert (len(now.left_out), now.lacks_files) == (1 - comes, not comes)
    with pytest.raises(OSError, match="Read-only"), mock.patch("os.open", side_effect=READ_ONLY):
        fetch._open_part(file)


def test_each_host_is_asked_for_what_was_written_since_its_first_task_began(tmp_path: Path) -> None:
    hosts = {"worker:0": "h1", "worker:1": "h2", "worker:2": "h2"}
    tasks = [{"name": each, "host": hosts[each], "workdir": "/train"} for each in hosts]
    folder = JobFolder(tmp_path)
    folder.plan_file.write_text(json.dumps({"tasks": tasks}))
    with contextlib.closing(EventLog(str(folder.events_file))) as record:
        for at, task in (300, "worker:2"), (200, "worker:1"), (400, "worker:1"), (100, "worker:0"):
            record.append(events.TaskStarted(at=at, task=task, attempt=0, pid=1))
    program = {"command": ["true"], "sync": "off"}
    spec = {"name": "j", "cluster": {"worker": 3}, "program": program, "hosts": ["h1", "h2"]}
    (tmp_path / "job.yaml").write_text(json.dumps({**spec, "strategy": "multi_worker_mirrored"}))
    read = loader.load(tmp_path / "job.yaml", cwd=str(tmp_path))
    fetch = Fetch(folder, read, [], str(tmp_path), lambda _: False, lambda *_: None)
    fetch._start_sources()
    asked = {source.name: source._arguments[2] for source, _ in fetch._places.values()}
    assert asked == {"h1": pytest.approx(100, abs=1), "h2": pytest.approx(200, abs=1)}
    fetch._loop.close()


class Sent(list[Any]):
    @property
    def channel(self) -> Any:
        return SimpleNamespace(send=self.append, flush=int, drain=int, pending=False, broken=False)


@mock.patch.object(written_files, "_SECONDS", -1.0)
def test_a_host_lists_what_was_written_and_sends_as_much_as_listed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "__pycache__").mkdir()
    for name in ("out/log", "other", "old", "out/__pycache__/log.pyc"):
        (tmp_path / name).write_text("0123456789")
    os.utime(tmp_path / "old", (1, 1))  # a task has copied it with its time
    before, began = ((tmp_path / "old").stat().st_ctime + each for each in (-10, 10))
    found = {}
    for patterns, since in (([], before), (["out"], before), (["*lo*"], before), ([], began)):
        search = written_files._search(str(tmp_path), patterns, since, [])
        lists = Sent()
        written_files._list(lists.channel, 0, search, 100)
        key = (*patterns, since)
        found[key] = sorted(each[0] for part in lists for each in part.files)
    named: dict[Any, Any] = {("out", before): ["out/log"], ("*lo*", before): ["out/log"]}
    assert found == {(before,): ["old", "other", "out/log"], **named, (began,): []}
    for most, said in ((3, []), (2, ["there are more than 2 files"])):
        search, lists = written_files._search(str(tmp_path), [], before, []), Sent()
        written_files._list(lists.channel, 0, search, most)
        assert [why for part in lists for _, why in part.left_out] == said
    sent = Sent()
    written_files._read(sent.channel, str(tmp_path), ReadFile(0, "out/log", 2, 6, digest=False))
    written_files._read(sent.channel, str(tmp_path), ReadFile(0, "out", 0, 6, digest=False))
    for name, zeros, at in (("a", b"", 1 << 40), ("b", bytes(5000), 1 << 40), ("c", b"", 1 << 41)):
        with (tmp_path / name).open("wb") as file:
            file.write(zeros)
            file.seek(at)
            file.write(b"x")
        written_files._read(sent.channel, str(tmp_path), ReadFile(0, name, 0, 1 << 42, digest=True))
    data, end, refused, *parts = sent
    first, second, other = (each.digest for each in parts if isinstance(each, FileReadEnd))
    assert first == second != other
    source = listed(["x", 1, 1, 1])
    source._wanted.append((None, lambda _: None))
    assert source._receive(parts[0]), "a sign of life, as it takes long"
    assert not source._receive(FileRead(9, b"x"))
    assert (data.offset, data.data) == (2, b"2345")
    assert end.size == 10  # so the other side knows that it has grown
    assert refused.errno
