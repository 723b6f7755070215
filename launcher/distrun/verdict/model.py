"""A verdict: what the first cause of a failure was, and what shows it: often the end of a log."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

# At run time too: distrun.codec reads the hints.
from distrun.agent.protocol.causes import Cause
from distrun.frozen import Frozen


class Kind(str, Enum):
    """The kinds of failures that verdicts distinguish. `words/explained.txt` explains each."""

    EXCEPTION = "exception"
    EXIT = "exit"
    KILLED = "killed"
    PREEMPTED = "preempted"
    CRASH = "crash"
    HOST_MEMORY = "host_memory"
    GPU_MEMORY = "gpu_memory"
    DISK_FULL = "disk_full"
    LIMIT = "limit"
    PERMISSION = "permission"
    PORT_TAKEN = "port_taken"
    SCRIPT_NOT_FOUND = "script_not_found"
    FILE_NOT_SENT = "file_not_sent"
    NOT_STARTED = "not_started"
    IMPORT_ERROR = "import_error"
    ARGUMENTS = "arguments"
    NO_INPUT = "no_input"
    TENSORFLOW1 = "tensorflow1"
    KERAS3 = "keras3"
    COLLECTIVES_LATE = "collectives_late"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    CLUSTER_MISMATCH = "cluster_mismatch"
    PROXY = "proxy"
    DATA_RAN_OUT = "data_ran_out"
    NOT_FINITE = "not_finite"
    LEFT_EARLY = "left_early"
    UNRESPONSIVE = "unresponsive"
    CONNECTION_LOST = "connection_lost"
    HOST_LOST = "host_lost"
    LOGIN_REFUSED = "login_refused"
    HOST_UNKNOWN = "host_unknown"
    HOST_DOWN = "host_down"
    HOST_UNFIT = "host_unfit"
    NO_PYTHON = "no_python"
    NO_TENSORFLOW = "no_tensorflow"
    NETWORK = "network"
    NO_ROOM = "no_room"
    SCHEDULER = "scheduler"
    RECORD = "record"
    DEFECT = "defect"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    QUALIFIED = "qualified"
    OTHER = "other"


_OF_CODE = (
    *(Kind.EXCEPTION, Kind.IMPORT_ERROR, Kind.SCRIPT_NOT_FOUND, Kind.ARGUMENTS, Kind.NO_INPUT),
    *(Kind.TENSORFLOW1, Kind.KERAS3, Kind.PERMISSION),
)
"""Kinds of failures that come again if nothing changes but the time."""


class Source(str, Enum):
    LOG = "log"
    LOGS = "logs"  # of all tasks
    EXIT = "exit"
    START = "start"
    PROCESS = "process"
    KERNEL = "kernel"
    LINK = "link"
    HOST = "host"
    DISTRUN = "distrun"


class LogTail(Frozen):
    """The last bytes of a log.

    `is_whole`: they are the whole log. `begin`: where the output of the last attempt begins in
    them. The line before it that names the attempt proves nothing: a program can print such a line.
    `limit`: how many of them had been printed when `timeouts.run` expired, if it did.
    """

    raw: bytes
    is_whole: bool = True
    begin: int = 0
    limit: int | None = None

    @property
    def is_enough(self) -> bool:
        """Whether it is more than the end of one long line, whose beginning would say more."""
        return self.is_whole or -1 < self.raw.find(b"\n") < len(self.raw) // 2


class Evidence(Frozen, kw_only=True):
    """One piece of evidence: a quoted line, or a cause.

    Attributes:
        task: whose it is; None: that of no single task.
        host: the host, for evidence of a kernel, a link or a host.
        line: the line's number in the log, from 1; if that is unknown, from the end: -1 is the
            last line.
        text: the quotation; empty if there is a `cause` instead.
    """

    task: str | None = None
    source: Source = Source.DISTRUN
    host: str = ""
    line: int | None = None
    text: str = ""
    cause: Cause | None = None


Found: TypeAlias = tuple[Cause, tuple[Evidence, ...]]
"""A cause, and what shows it."""


class Replacement(Frozen, kw_only=True):
    """What a further plan has changed, for readers.

    Attributes:
        former_hosts: the host where each moved task was before.
        workers: the number of workers since then.
        all_workers: the number of workers in the first plan.
        seconds: how long no step was reported; None: no task has reported one since then.
        repeated_steps: the steps that were done and not saved; None: not known.
    """

    at: float
    former_hosts: dict[str, str]
    hosts: dict[str, str]
    workers: int
    all_workers: int
    cause: Cause | None = None
    seconds: float | None = None
    repeated_steps: int | None = None


class Verdict(Frozen, kw_only=True):
    """The first cause of a failure.

    Attributes:
        task: the task that failed first; None if it was no single task's failure.
        echoes: the tasks that failed only because of it.
        alike: the tasks that failed of the same error by themselves.
        replacement: the further plan by which the job continues; what that has cost is known later.
    """

    task: str | None = None
    attempt: int = 0
    kind: Kind
    cause: Cause
    evidence: tuple[Evidence, ...] = ()
    echoes: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    replacement: Replacement | None = None

    def recurs_in(self, other: Verdict) -> bool:
        """Whether another failure, of code that runs alike each time, was at the same place."""
        own, others = self.cause, other.cause
        is_same = (own.code, own.text, own.name) == (others.code, others.text, others.name)
        return is_same and self.kind is other.kind and self.kind in _OF_CODE

    @property
    def repeats_outcome(self) -> bool:
        """Whether it only repeats why distrun ended the job."""
        own = all(e.source is Source.DISTRUN and e.cause == self.cause for e in self.evidence)
        return self.task is None and own and (self.kind is Kind.OTHER or bool(self.evidence))
