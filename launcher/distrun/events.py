"""What happens to a job, as events; and the append-only record of them, the only authority.

The record is one JSON object a line. Its replay through :func:`distrun.lifecycle.step` is the
job's state. A torn last line, left by a death while writing, is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import dataclass
from typing import Any

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause
from distrun.codec import from_json, to_json
from distrun.spec.model import NO_RESTARTS, RestartSpec
from distrun.strategies import Success
from distrun.verdict.model import Verdict


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Event:
    """Something that happened; `at` is Unix time in seconds.

    What two of them have in common stands here once: made for each kind, it would take half of
    the time that a command needs to start.
    """

    at: float

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class JobCreated(Event):
    job_id: str
    name: str
    strategy: str
    success: Success
    spec_file: str
    supervisor_pid: int
    grace: float
    start_timeout: float | None = None
    run_timeout: float | None = None
    stall_timeout: float | None = None
    link_timeout: float | None = None
    restart: RestartSpec = NO_RESTARTS


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HostReady(Event):
    """An agent runs there. `agent_pid` is its process id on its own host.

    `behind`: the seconds by which that host's clock, which `at` goes by in what it reports, is
    behind the supervisor's.
    """

    host: str
    agent_pid: int
    hostname: str
    python: str
    cores: float
    gpus: tuple[int, ...]
    kind: str = "local"
    """How it is reached, for people."""
    pid_namespace: str = ""
    """Where its process ids hold, see :func:`distrun.agent.linux.facts.pid_namespace`."""
    address: str | None = None
    """The address at which the login arrived."""
    behind: float = 0.0


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HostLost(Event):
    """The host's agent is gone, and nothing of its tasks is left there."""

    host: str
    cause: Cause


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LinkLost(Event):
    """The way to a host's agent is lost. Its tasks go on, for timeouts.link at most."""

    host: str
    cause: Cause


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LinkRestored(Event):
    """The way is there again; what happened meanwhile follows."""

    host: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LogsIncomplete(Event):
    """The logs of a host's tasks are not all on this machine."""

    host: str
    cause: Cause


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SyncStarted(Event):
    """The host is sent those of the program's files that it lacks; sizes in bytes."""

    host: str
    files: int
    size: int
    all_files: int
    all_size: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Synced(Event):
    """The host has a copy of the program's files, whole; so much of it was sent."""

    host: str
    files: int
    size: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FilesPreserved(Event):
    """Tasks have written files into that copy: they are kept on the host, in `folder`."""

    host: str
    folder: str
    files: int
    size: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HostFault(Event):
    """The host's agent cannot go on and is ending its tasks."""

    host: str
    cause: Cause


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """A planned task, as far as the job's state needs it."""

    name: str
    role: str
    index: int
    host: str
    address: str | None = None
    proxied: Cause | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class JobPlanned(Event):
    tasks: tuple[TaskRecord, ...]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PreflightSkipped(Event):
    """The hosts were not tried out before the first task, as the launch command was told."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PreflightStarted(Event):
    """So many hosts are being tried out."""

    hosts: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PreflightFound(Event):
    """Something that is not as it should be on a host. `grade`: warning or failed."""

    host: str
    subject: str
    grade: str
    text: str
    advice: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PreflightEnded(Event):
    """The hosts have been tried out. `checks` are how many things were looked at."""

    checks: int
    failed: int
    warnings: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Aborted(Event):
    """The job cannot be, or cannot go on: a port is taken, a plan impossible, a disk full."""

    cause: Cause
    exit_code: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TaskStarted(Event):
    task: str
    attempt: int
    pid: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TaskNotStarted(Event):
    task: str
    attempt: int
    cause: Cause


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TaskExited(Event):
    """`lived` is in seconds by its host's monotonic clock: `at` may jump, this does not.

    `oom` tells why it is thought that the kernel killed it for want of memory; `suspended`: it
    stood still when it was told to stop; `was_told`: that had reached it before it exited.
    """

    task: str
    attempt: int
    code: int | None = None
    signal: int | None = None
    lived: float | None = None
    oom: str = ""
    suspended: bool = False
    was_told: bool = True


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TaskEnded(Event):
    task: str
    attempt: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TaskReported(Event):
    """What a task has last said of itself through DISTRUN_NOTIFY, recorded before its exit."""

    task: str
    values: dict[str, str]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RestartPlanned(Event):
    """What has been decided after a failure: these tasks start again, in `delay` seconds at least.

    `left` is how many more restarts they may have; `is_free` where this one was not counted.
    """

    number: int
    tasks: tuple[str, ...]
    cause: str
    delay: float
    is_free: bool
    left: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TensorBoardStarted(Event):
    """TensorBoard has been started beside the job; it listens at `address` in a moment."""

    address: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TensorBoardEnded(Event):
    """It ended, or could not be started. No failure of the job."""

    cause: Cause


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StopRequested(Event):
    """Somebody wants the job to end. `cause` names the command or the signal."""

    cause: Cause
    signal: int
    grace: float
    exit_code: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TimedOut(Event):
    """One of the job's timers ran out.

    They are `start`, `run`, `evaluator`, `restart:1` for which that restart waited, and
    `health:job`, after which restarts are counted from 0 again.
    """

    timer: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class VerdictReached(Event):
    """What a failure was, once all it concerns has ended: before a restart, or a job's end."""

    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended. `origin` says whose exit code it is; `cause` is a sentence.

    `task` is whose code it is, or whose failure; `verdict` is what is known of a failed job's
    first cause.
    """

    result: str
    exit_code: int
    origin: str
    cause: str
    task: str | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class JobEnded(Event):
    outcome: Outcome


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        JobCreated, HostReady, HostFault, HostLost, LinkLost, LinkRestored, LogsIncomplete,
        SyncStarted, Synced, FilesPreserved,
        PreflightSkipped, PreflightStarted, PreflightFound, PreflightEnded,
        JobPlanned, Aborted, TaskStarted, TaskNotStarted, TaskExited, TaskEnded, TaskReported,
        RestartPlanned, TensorBoardStarted, TensorBoardEnded, StopRequested, TimedOut,
        VerdictReached, JobEnded,
    )
}  # fmt: skip


def encode(event: Event) -> dict[str, Any]:
    """An event as the JSON object that the record and `distrun events --json` hold."""
    return {"event": type(event).__name__, **to_json(event)}


def decode(record: dict[str, Any]) -> Event | None:
    """The inverse; None for an event that this version does not know."""
    kind = _KINDS.get(record.get("event", ""))
    return None if kind is None else from_json(kind, record)


_ROOM = 256 * 1024
"""Bytes kept on the disk for the end of a job: two events each of a thousand tasks."""


class EventLog:
    """The record's writer. There is one: the job's supervisor.

    It keeps room ahead, so that a job whose disk is full can still say so, and how it ended.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._kept = 0
        self._keeps_room = True

    def append(self, event: Event) -> dict[str, Any]:
        """Write one event, whole or not at all; returns it as written.

        Raises:
            OSError: the disk is full or broken; what was there before is unharmed. Where the
                room that was kept is all there is, this is raised once. From then on it is used.
        """
        record = encode(event)
        line = json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
        size = os.fstat(self._file).st_size
        if size:  # a job that cannot even begin to tell of itself has nothing to keep room for
            self._keep_room(size + len(line))
        written = os.write(self._file, line)
        if written < len(line):
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, f"no space left for {len(line)} bytes of the job's record")
        return record

    def _keep_room(self, size: int) -> None:
        if not self._keeps_room or size + _ROOM <= self._kept:
            return
        try:
            syscalls.reserve(self._file, size, 2 * _ROOM)
        except OSError as error:
            self._keeps_room = False
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, os.strerror(error.errno)) from error
        self._kept = size + 2 * _ROOM

    def let_go_of_room(self) -> None:
        """Give back what was kept: the job has ended."""
        self._keeps_room = False
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, os.fstat(self._file).st_size)

    def close(self) -> None:
        self.let_go_of_room()
        os.close(self._file)


class EventReader:
    """The record's events in order, as they come; those of later versions left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def read_new(self) -> list[Event]:
        """What was added since the last call. A torn last line is not there yet."""
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        decoded = map(_decode_line, whole.splitlines())
        return [event for event in decoded if event is not None]


def _decode_line(line: bytes) -> Event | None:
    try:
        return decode(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def read(path: str) -> list[Event]:
    """All events of a record. Raises FileNotFoundError where there is none."""
    return EventReader(path).read_new()


def first(path: str) -> Event | None:
    """A record's first event, without reading the rest; None where it has none yet."""
    with open(path, "rb") as file:
        line = file.readline()
    return _decode_line(line) if line.endswith(b"\n") else None
