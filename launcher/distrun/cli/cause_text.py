"""Causes in words: the one place where a code becomes a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable

from distrun.agent.protocol import Cause, Code


def cause_text(cause: Cause) -> str:
    """What failed, as a clause without a full stop."""
    return _TEXT[cause.code](cause)


def cause_advice(cause: Cause) -> str | None:
    """What to do about it; None where nothing helps that distrun could name."""
    advice = _ADVICE.get(cause.code)
    return None if advice is None else advice(cause)


def _why(cause: Cause) -> str:
    return os.strerror(cause.errno)


_CHECK_PROGRAM = "check `program` in the spec; `distrun plan SPEC` shows each task's command"

_TEXT: dict[Code, Callable[[Cause], str]] = {
    # A task's program could not be executed.
    Code.PROCESS_NOT_MADE: lambda c: f"a process for it could not be made: {_why(c)}",
    Code.LOG_NOT_OPENED: lambda c: f"its log {c.path!r} cannot be opened: {_why(c)}",
    Code.WORKDIR_NOT_ENTERED: lambda c: (
        f"its working folder {c.path!r} cannot be entered: {_why(c)}"
    ),
    Code.PROGRAM_NOT_FOUND: lambda c: (
        f"there is no program {c.name!r}{'' if '/' in c.name else ' in PATH'}"
    ),
    Code.INTERPRETER_NOT_FOUND: lambda c: (
        f"{c.name!r} names an interpreter that is not there: {c.path}"
    ),
    Code.PROGRAM_NOT_EXECUTABLE: lambda c: (
        f"{c.name!r} may not be executed: is it a file, and executable?"
    ),
    Code.PROGRAM_FORMAT_UNKNOWN: lambda c: (
        f"{c.name!r} is no program: its first line should be like #!/bin/sh"
    ),
    Code.ARGUMENTS_TOO_LONG: lambda _: (
        "its arguments and environment are too large for Linux (128 KiB for one string)"
    ),
    Code.PROGRAM_NOT_EXECUTED: lambda c: f"{c.name!r} cannot be executed: {_why(c)}",
    Code.AGENT_DEFECT: lambda c: f"the agent failed before executing it: {c.text}",
    # Decided by the plan.
    Code.PEERS_BEHIND_PROXY: lambda c: f"{c.name} is set, and no_proxy does not name {c.host}",
}

_ADVICE: dict[Code, Callable[[Cause], str]] = {
    Code.PROGRAM_NOT_FOUND: lambda _: _CHECK_PROGRAM,
}
