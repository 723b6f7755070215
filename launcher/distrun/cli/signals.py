"""How SIGINT, SIGTERM and SIGHUP end a command: as exceptions, so that `finally` blocks run."""

from __future__ import annotations

import contextlib
import signal
import sys
from types import FrameType
from typing import NoReturn

from distrun.cli import streams

_AGAIN_SECONDS = 0.01
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TerminatedError(BaseException):
    """A signal other than SIGINT asked this command to end."""

    def __init__(self, number: int) -> None:
        self.number = number


ENDED = (KeyboardInterrupt, TerminatedError)
"""The exceptions that these signals raise."""


def install() -> None:
    """Raise an exception when one of these signals arrives."""
    # Under nohup, SIGHUP is ignored.
    defaults = (each for each in ENDING_SIGNALS if signal.getsignal(each) is signal.SIG_DFL)
    raise_at(signal.SIGINT, *defaults)


def raise_at(*numbers: int) -> None:
    """Raise the exception of each of these signals when it arrives."""
    for number in numbers:
        signal.signal(number, _end)
    sys.unraisablehook = _raise_again


def raise_once(number: int) -> None:
    """Raise the exception of this signal when it arrives first, and block it from then on."""
    raise_at(number)
    signal.signal(number, _end_once)


def block(*numbers: int) -> None:
    """Block signals; none arrives after that. Drops the exception of one that has just arrived.

    Do not ignore them in place of that: Python prints a traceback, "ignored due to race condition",
    if one arrives meanwhile.
    """
    for _ in range(2):  # the exception may come before the call
        with contextlib.suppress(*ENDED):
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Python loses what is raised in a callback of a weak reference: raise it after that."""
    number = signal_of(lost.exc_value)
    if number is None:
        sys.__unraisablehook__(lost)
        return

    def end(_number: int, frame: FrameType | None) -> None:
        caller = frame
        while caller is not None:
            if caller.f_code is _raise_again.__code__:
                return  # the callback has not returned: it would be lost again
            caller = caller.f_back
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(number) in (_end, _end_once):
            _end(number, frame)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)


def restore() -> None:
    """Undo :func:`install`: nothing is left to clean up."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _end:
            block(number)
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])


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


def _end(number: int, _frame: object) -> NoReturn:
    streams.discard_when_stalled()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise TerminatedError(number)


def _end_once(number: int, frame: object) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    _end(number, frame)
