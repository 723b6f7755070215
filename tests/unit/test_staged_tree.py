"""A copy of files as it comes about on a host, with both ends of the link in one process."""

import hashlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.parts.agent import FileReceiver, agent_dir, blob_cache
from harness.parts.hosts import FileSender, list_parts
from harness.parts.protocol import Message, file_messages
from harness.parts.sync import FileSelection, LinkEntry, Manifest
from harness.parts.top import replace
from harness.parts.words import cause_text
from harness.values import not_none

DEADLINE = 20.0


def wires(receive: Callable[[Any], None]) -> Any:
    """The supervisor's channel, to the agent's receiver."""

    def send(message: Message, _seq: int = 0) -> None:
        receive(message)

    return SimpleNamespace(broken=False, pending=False, send=send, flush=bool)


class Host:
    """A host's state folder, and the agent of one job after the other in it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.reports: list[Message] = []
        self.came = 0
        """Bytes of files that have come over the link."""
        self.beats = 0
        self.most_cached = blob_cache.MOST_BYTES
        self._jobs = 0
        self._on_their_way: list[file_messages.FileDataReceived] = []

    def expect(self, manifest: Manifest) -> None:
        self._jobs += 1
        self.folder = self.state / "agents" / f"job-{self._jobs}"
        self.folder.mkdir(parents=True)
        self.dir = agent_dir.AgentDir(str(self.folder))
        self.copy = Path(self.dir.files_path)
        self.reports.clear()
        self.receiver = self.new_receiver()
        self.sender = FileSender(manifest)
        for part in list_parts(manifest):
            self.receiver.execute(part)

    def transfer(self, manifest: Manifest) -> None:
        self.expect(manifest)
        self.continue_transfer()

    def new_receiver(self, *, has_supervisor: bool = True) -> FileReceiver:
        link: Any = SimpleNamespace(
            is_up=True,
            send=self.receive if has_supervisor else self._nobody,
            report=self.reports.append,
            send_heartbeat_if_due=self._beat,
        )
        return FileReceiver(self.dir, link, self.most_cached)

    def continue_transfer(self, *, at_most: int = 1 << 60, losing: bool = False) -> None:
        """Transfer everything, or at most so many bytes. `losing`: the link loses them."""
        deadline = time.monotonic() + DEADLINE
        until = self.came + at_most
        while not self.is_over and self.came < until:
            assert time.monotonic() < deadline, "the copy is never whole"
            self.receiver.work()
            self.sender.send(wires(self._nobody if losing else self._to_agent))
            if losing or self.sender.failure:
                return
            answers, self._on_their_way = self._on_their_way, []
            for answer in answers:
                self.sender.record_received(answer.size)

    def cut(self) -> None:
        self.sender.pause()
        self.receiver.pause()
        self._on_their_way.clear()

    @property
    def is_over(self) -> bool:
        is_ready = any(isinstance(each, file_messages.FilesReady) for each in self.reports)
        return is_ready or bool(self.refused)

    @property
    def refused(self) -> str:
        found = [each for each in self.reports if isinstance(each, file_messages.FilesRefused)]
        return cause_text(found[0].cause) if found else ""

    def receive(self, message: Message) -> None:
        """What the agent sends, but for its reports."""
        if isinstance(message, file_messages.FilesRequested):
            self.sender.resume(message)
        else:
            assert isinstance(message, file_messages.FileDataReceived)
            self._on_their_way.append(message)

    def _to_agent(self, message: file_messages.FileList | file_messages.FileData) -> None:
        if isinstance(message, file_messages.FileData):
            self.came += len(message.data)
        self.receiver.execute(message)

    def _nobody(self, message: Message) -> None:
        pass

    def _beat(self) -> None:
        self.beats += 1


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "state" / "distrun")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    top = tmp_path / "job"
    for folder in ("pkg/deep", "empty"):
        (top / folder).mkdir(parents=True)
    texts = {"train.py": "import pkg", "pkg/twice": "import pkg", "run.sh": "#!/bin/sh",
             "sealed": "s", "pkg/__init__.py": "", "pkg/deep/__init__.py": ""}  # fmt: skip
    for name, text in texts.items():
        (top / name).write_text(text)
    (top / "run.sh").chmod(0o755)
    (top / "sealed").chmod(0o444)
    (top / "link").symlink_to("pkg/twice")
    (top / os.fsdecode(b"\xff\n'$(x)")).write_text("odd")
    (top / "big").write_bytes(random.Random(1).randbytes(3_000_000))
    return top


def manifest_of(top: Path) -> Manifest:
    return FileSelection(str(top), [str(top)]).manifest()


def tree(top: Path) -> dict[str, tuple[int, bytes | str]]:
    """Mode and contents of everything below; folders' modes are not sent."""

    def contents(path: Path) -> tuple[int, bytes | str]:
        if path.is_symlink() or path.is_dir():
            return 0, os.readlink(path) if path.is_symlink() else ""
        return path.stat().st_mode & 0o6111, path.read_bytes()

    return {str(path.relative_to(top)): contents(path) for path in top.rglob("*")}


def test_a_copy_is_what_was_sent_and_the_second_needs_nothing_sent(host: Host, job: Path) -> None:
    manifest = manifest_of(job)
    setuid = tuple(replace(each, mode=each.mode | 0o6000) for each in manifest.files)
    descriptors = os.listdir("/proc/self/fd")
    host.expect(replace(manifest, files=setuid))
    host.continue_transfer(at_most=1_000_000)
    assert not host.copy.exists()  # nobody sees half of it
    host.continue_transfer()
    assert tree(host.copy) == tree(job)
    once = len({file.digest for file in manifest.files})
    assert host.sender.files == once - 1  # the same contents come once, nothing not at all
    host.receiver.close()
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)
    host.dir.remove()

    host.transfer(manifest)
    assert tree(host.copy) == tree(job)
    assert (host.sender.files, host.sender.size) == (0, 0)
    host.receiver.close()

    (job / "train.py").write_text("import pkg.deep")
    host.transfer(manifest_of(job))
    assert tree(host.copy) == tree(job)
    assert (host.sender.files, host.sender.size) == (1, len("import pkg.deep"))


def test_after_a_lost_link_it_goes_on_where_it_was(host: Host, job: Path) -> None:
    host.expect(manifest_of(job))
    host.continue_transfer(at_most=600_000)
    host.continue_transfer(losing=True)
    host.cut()
    for number in range(len(manifest_of(job).files)):  # parts that the former link had on its way
        host.receiver.execute(file_messages.FileData(number, 1, b"old"))
    came = host.came
    host.continue_transfer()
    assert tree(host.copy) == tree(job)
    assert came >= 600_000
    assert host.came == host.sender.size  # nothing came twice
    assert host.sender.received == host.sender.size


def test_many_small_files_keep_signs_of_life_waiting_for_few(host: Host, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for number in range(300):
        (tmp_path / "job" / str(number)).write_text(str(number))
    manifest = manifest_of(tmp_path / "job")
    sender, sent = FileSender(manifest), list[Message]()
    for _ in range(2):  # the second time, what was under way has been lost with a link
        sender.resume(file_messages.FilesRequested(list(range(300)), 0))
        sender.send(wires(sent.append))
    half = len(sent) // 2
    assert 0 < half < 200
    assert sent[:half] == sent[half:]
    host.transfer(manifest)
    assert tree(host.copy) == tree(tmp_path / "job")
    assert (host.sender.received, host.sender.size) == (manifest.size, manifest.size)
    assert host.beats >= 300
    host.beats = 0
    host.receiver.close()
    assert host.beats >= 300 + 300  # of the copy, and of the store


def test_a_slow_link_has_few_seconds_of_files_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 16 kB/s, heartbeats would otherwise wait for longer than `timeouts.link` allows."""
    (tmp_path / "model").write_bytes(bytes(300_000))
    sender, sent, now, longest = FileSender(manifest_of(tmp_path)), list[Any](), 0.0, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sender.resume(file_messages.FilesRequested([0], 0))
    while sender.received < 300_000:
        sender.send(wires(sent.append))
        longest = max(longest, sum(len(each.data) for each in sent) / 16e3)
        now += len(sent[0].data) / 16e3
        sender.record_received(len(sent.pop(0).data))
    assert longest < 5


def test_a_store_that_was_damaged_is_not_believed(host: Host, job: Path) -> None:
    host.transfer(manifest_of(job))
    host.receiver.close()
    stored = [path for path in (host.state / "files").rglob("*") if path.is_file()]
    largest = max(stored, key=lambda path: path.stat().st_size)
    largest.write_bytes(b"0" * largest.stat().st_size)
    stored.remove(largest)
    stored[0].unlink()
    host.transfer(manifest_of(job))
    assert (tree(host.copy), host.sender.files) == (tree(job), 2)
    host.transfer(manifest_of(job))
    assert host.sender.files == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.write_bytes(b"1" * 3_000_000), "changed while it was being sent"),
        (lambda path: os.truncate(path, 10), "became shorter while it was being sent"),
        (lambda path: path.unlink(), "cannot be sent: No such file"),
    ],
)
def test_a_file_that_changes_spoils_no_job(host: Host, job: Path, change: Any, told: str) -> None:
    host.expect(manifest_of(job))
    change(job / "big")
    host.continue_transfer()
    said = host.refused or cause_text(not_none(host.sender.failure))
    assert told in said
    assert "big" in said
    host.receiver.close()
    assert list(host.folder.iterdir()) == []
    # What grows behind the part that was listed, a log for one, is no harm.
    (job / "big").write_bytes(b"2" * 3_000_000)
    host.expect(manifest_of(job))
    with open(job / "big", "ab") as file:
        file.write(b"more")
    host.continue_transfer()
    assert (host.copy / "big").read_bytes() == b"2" * 3_000_000


@pytest.mark.parametrize(
    "part",
    [
        file_messages.FileList([["../x", 0o644, 1, "0" * 64]], [], [], last=True),
        file_messages.FileList([["x", 0o644, 1, "../" * 21 + "x"]], [], [], last=True),
        file_messages.FileList([], [["x", "../y"]], [], last=True),
        file_messages.FileList([], [["x", "/etc/passwd"]], [], last=True),
        file_messages.FileList([], [], ["x/../../y"], last=True),
    ],
)
def test_nothing_is_written_outside_of_the_copy(host: Host, part: file_messages.FileList) -> None:
    host.expect(Manifest(base="/", files=()))
    host.receiver = host.new_receiver(has_supervisor=False)
    host.receiver.execute(part)
    host.continue_transfer()
    assert host.refused
    assert list(host.folder.iterdir()) == []


@pytest.mark.parametrize("moved", ["pkg", ""])
def test_files_that_a_task_moved_stay(host: Host, job: Path, tmp_path: Path, moved: str) -> None:
    """It has left a link in their place."""
    host.transfer(manifest_of(job))
    folder, store = host.copy / moved, tmp_path / "store"
    folder.rename(store)
    folder.symlink_to(store)
    before = sorted(store.rglob("*"))
    assert [each for each in before if each.is_file()]
    host.receiver.close()
    host.dir.remove()
    assert sorted(store.rglob("*")) == before


def test_what_tasks_have_written_stays_and_nothing_else_does(host: Host, job: Path) -> None:
    host.transfer(manifest_of(job))
    (host.copy / "pkg" / "__pycache__").mkdir()
    (host.copy / "pkg" / "__pycache__" / "x.pyc").write_text("compiled")
    (host.copy / "models").mkdir()
    (host.copy / "models" / "weights").write_text("learnt")
    (host.copy / "train.py").write_text("import PKG")  # as long
    host.receiver.close()
    host.dir.remove()
    assert list(host.folder.iterdir()) == [host.copy]
    said = host.reports[-1]
    assert isinstance(said, file_messages.FilesPreserved)
    assert (said.files, said.size) == (2, len("learnt") + len("import PKG"))
    left = [path for path in Path(said.folder).rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == ["train.py", "weights"]
    assert Path(said.folder) == host.copy


def test_the_cache_keeps_the_newest_blobs_up_to_its_limit(host: Host, job: Path) -> None:
    host.most_cached = 50
    for number in range(4):
        (job / "train.py").write_text(f"{number}" * 20)
        host.transfer(manifest_of(job))
        host.receiver.close()
        for path in (host.state / "files").rglob("*"):
            if path.is_file() and path.read_bytes() == (job / "train.py").read_bytes():
                os.utime(path, (time.time() - 1000 + number, time.time() - 1000 + number))
    kept = {path.read_bytes() for path in (host.state / "files").rglob("*") if path.is_file()}
    assert {b"3" * 20, b"2" * 20, b"1" * 20} <= kept
    assert b"0" * 20 not in kept
    assert (job / "big").read_bytes() in kept
    (host.state / "files" / ".part-old").write_text("of an agent that was killed")
    os.utime(host.state / "files" / ".part-old", (time.time() - 2 * 86400,) * 2)
    host.transfer(manifest_of(job))
    host.receiver.close()
    assert not list((host.state / "files").glob(".part-*"))
    (again,) = (host.state / "files").rglob(hashlib.sha256(b"3" * 20).hexdigest())
    assert again.stat().st_mtime > time.time() - 500, "used just now: the last to be removed"


def test_the_folder_of_a_long_job_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    for name in ("running", "forgotten", "ending"):
        (agents / name / "files").mkdir(parents=True)
        os.utime(agents / name, (1, 1))
    agent_dir.AgentDir(str(agents / "running")).touch()
    agent_dir.AgentDir(str(agents / "ending")).remove()
    assert [path.name for path in agents.iterdir()] == ["running"]


def test_a_file_that_cannot_be_made_is_named_and_nothing_of_it_stays(host: Host) -> None:
    name, before = "n" * 300, set(os.listdir("/proc/self/fd"))
    host.expect(Manifest(base="/", files=()))
    host.receiver = host.new_receiver(has_supervisor=False)
    listed = [f"pkg/{name}", 0o644, 3, "0" * 64]
    host.receiver.execute(file_messages.FileList([listed], [], [], last=True))
    host.receiver.work()
    host.receiver.execute(file_messages.FileData(0, 0, b"abc"))
    assert host.refused == f"{host.copy}/pkg/{name}: File name too long"
    assert not [path for path in host.state.rglob("*") if path.is_file()]
    # What other tests have let go of may be closed only now.
    assert set(os.listdir("/proc/self/fd")) <= before
    host.transfer(Manifest(base="/", files=(), links=(LinkEntry(path="a", target="b"),) * 2))
    assert host.refused == f"{host.copy}/a: File exists"
