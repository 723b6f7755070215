"""One exception class for each of distrun's own exit codes (from sysexits.h, if it has one).

Only :mod:`distrun.cli` turns these into a process's exit; everything else raises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrun.agent.protocol import Cause

EXIT_KILLED = 137  # `distrun kill`


class DistrunError(Exception):
    """An error of distrun's own. Its message says what happened, to what, and what to do."""

    exit_code = 70

    def __init__(
        self, message: str = "", *, hint: str | None = None, cause: Cause | None = None
    ) -> None:
        super().__init__(message or cause)
        self.message = message
        self.hint = hint
        self.cause = cause
        """In place of message and hint, where those are not known before it is shown."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (super().__str__(), self.hint)))

    def as_cause(self) -> Cause:
        """Return the cause, for the record."""
        if self.cause is not None:
            return self.cause
        from distrun.agent.protocol import Cause, Code

        return Cause(Code.UNCODED, text=self.message)


class UsageError(DistrunError):
    """The command line asks for something that does not exist or makes no sense."""

    exit_code = 2


class InvalidSpecError(DistrunError):
    """The spec is invalid, or does not fit. The message has every problem, one a line."""

    exit_code = 65
    problems: tuple[Any, ...] = ()  # a Problem for each that has a place


class HostError(DistrunError):
    """A host could not be reached or prepared, or was lost; a port there is taken."""

    exit_code = 69


class OutputError(DistrunError):
    """What a command prints could not be written: standard output is closed, or a disk is full."""

    exit_code = 69


class InterpreterError(HostError):
    """Python does not know its own path, with which distrun starts its processes and tasks."""

    def __init__(self) -> None:
        text = "Python does not know by which path it was started (sys.executable is empty)"
        super().__init__(text, hint="start it by its whole path: /usr/bin/python3 -m distrun ...")


class JobFailedError(DistrunError):
    """The job failed or was stopped. `exit_code` is the job's."""


class InternalError(DistrunError):
    """A defect in distrun itself."""

    exit_code = 70


class StartTimeoutError(DistrunError):
    """The job could not start in time, stalled, or its tasks cannot form their cluster."""

    exit_code = 75


class WaitTimeoutError(DistrunError):
    """`distrun wait` ran out of time; the job continues."""

    exit_code = 124  # as coreutils' timeout
