"""A verdict: what the first cause of a failure was, and what shows it."""

from __future__ import annotations

from enum import Enum

# At run time too: distrun.codec reads the hints.
from distrun.agent.protocol.causes import Cause, Kind
from distrun.frozen import Frozen


class Source(str, Enum):
    """Where a piece of evidence was found."""

    LOG = "log"
    LOGS = "logs"  # of all tasks
    EXIT = "exit"
    START = "start"
    PROCESS = "process"
    VARIABLES = "variables"
    KERNEL = "kernel"
    LINK = "link"
    HOST = "host"
    DISTRUN = "distrun"


class Evidence(Frozen, kw_only=True):
    """One piece of evidence: a quoted line, or a cause.

    Attributes:
        task: the task it is about, if it is about one.
        source: where it was found.
        host: the host, for evidence of a kernel, a link or a host.
        line: the line's number in the log, from 1; if that is unknown, from the end: -1 is the
            last line.
        text: the quotation; empty if there is a `cause` instead.
    """

    task: str | None
    source: Source = Source.DISTRUN
    host: str = ""
    line: int | None = None
    text: str = ""
    cause: Cause | None = None


class Verdict(Frozen, kw_only=True):
    """The first cause of a failure.

    Attributes:
        task: the task that failed first; None if it was no single task's failure.
        attempt: the number of that task's attempt, from 0.
        echoes: the tasks that failed only because of it.
    """

    task: str | None
    attempt: int = 0
    kind: Kind
    cause: Cause
    evidence: tuple[Evidence, ...] = ()
    echoes: tuple[str, ...] = ()
