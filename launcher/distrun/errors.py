"""One exception class for each of distrun's own exit codes (sysexits.h where it has one).

Only :mod:`distrun.cli` turns these into a process's exit; everything else raises them.
"""

from __future__ import annotations

EXIT_TIMED_OUT = 124  # `distrun wait --timeout`, as coreutils' timeout
EXIT_KILLED = 137  # `distrun kill`


class DistrunError(Exception):
    """An end that is distrun's own; its message says what happened, to what, and what to do."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DistrunError):
    """The command line asks for something that is not there or makes no sense."""

    exit_code = 2


class InvalidSpecError(DistrunError):
    """The spec cannot be used; the message holds every problem, one a line."""

    exit_code = 65


class HostError(DistrunError):
    """A host could not be reached or prepared, or was lost; a port there is taken."""

    exit_code = 69


class InternalError(DistrunError):
    """A defect in distrun itself."""

    exit_code = 70


class StartTimeoutError(DistrunError):
    """The job could not start in time, or stalled."""

    exit_code = 75


class WaitTimeoutError(DistrunError):
    """`distrun wait` ran out of time; the job goes on."""

    exit_code = EXIT_TIMED_OUT
