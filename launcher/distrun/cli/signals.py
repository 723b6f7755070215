"""How signals end a command: as exceptions, so that `finally` blocks run."""

from __future__ import annotations

import signal
from types import CodeType, FrameType

from distrun.cli import streams

ENDING_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)
"""As in syscalls, which no command imports before it needs that."""


class TerminatedError(BaseException):
    """A signal other than SIGINT asked this command to end."""

    def __init__(self, number: int) -> None:
        self.number = number


ENDED = (KeyboardInterrupt, TerminatedError)
"""The exceptions that these signals raise."""
command: CodeType | None = None
"""The function that runs a command. Once it has ended, the exit code is known: these signals do
nothing. None: this process runs none."""


def install() -> None:
    """Raise an exception when one of these signals arrives."""
    # Under nohup, SIGHUP is ignored.
    defaults = (each for each in ENDING_SIGNALS if signal.getsignal(each) is signal.SIG_DFL)
    for number in (signal.SIGINT, *defaults):
        signal.signal(number, _end)


def restore() -> None:
    """Undo :func:`install`: nothing is left to clean up.

    Python prints a traceback if one of them arrives while it is being ignored: they are blocked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def signal_of(error: BaseException | None) -> int | None:
    """Return the number of the signal that led to an exception; None if no signal did.

    The exception of a signal may be replaced on its way: Python before 3.12 raises RuntimeError
    in place of every exception in `__set_name__`.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, KeyboardInterrupt):
            return signal.SIGINT
        if isinstance(error, TerminatedError):
            return error.number
        error = error.__cause__ or error.__context__
    return None


def _end(number: int, frame: FrameType | None) -> None:
    if _is_over(frame):
        return
    streams.discard_when_stalled()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise TerminatedError(number)


def _is_over(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not command:
        frame = frame.f_back
    return frame is None and command is not None
