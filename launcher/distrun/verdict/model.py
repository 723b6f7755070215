"""What a verdict says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What a task or job failed of. `docs/failures.md` has a line for each."""

    EXCEPTION = "exception"
    EXIT = "exit"
    KILLED = "killed"
    PREEMPTED = "preempted"
    CRASH = "crash"
    HOST_MEMORY = "host_memory"
    GPU_MEMORY = "gpu_memory"
    DISK_FULL = "disk_full"
    PERMISSION = "permission"
    PORT_TAKEN = "port_taken"
    SCRIPT_NOT_FOUND = "script_not_found"
    NOT_STARTED = "not_started"
    IMPORT_ERROR = "import_error"
    ARGUMENTS = "arguments"
    KERAS3 = "keras3"
    COLLECTIVES_LATE = "collectives_late"
    CLUSTER_MISMATCH = "cluster_mismatch"
    PROXY = "proxy"
    DATA_RAN_OUT = "data_ran_out"
    NOT_FINITE = "not_finite"
    LEFT_EARLY = "left_early"
    UNRESPONSIVE = "unresponsive"
    CONNECTION_LOST = "connection_lost"
    HOST_LOST = "host_lost"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A line that a verdict rests on. `place` is a log and line of it, or who says so."""

    task: str | None
    place: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The first cause of a failure. `cause` is a sentence without its full stop.

    `task` is None where it is no single task's. `echoes` are the tasks that only followed.
    """

    task: str | None
    attempt: int = 0
    kind: Kind
    cause: str
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
    echoes: tuple[str, ...] = ()
