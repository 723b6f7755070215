"""Waiting for an event, with a deadline. Standard library only: tests/smoke.py uses it too."""

import time
from collections.abc import Callable
from typing import TypeVar

SOON = 60.0
"""Seconds that a short wait may take on a machine that others use too."""
_PAUSE = 9.0
"""How many times as long as the last call of a predicate the pause after it is: a predicate that
runs a command would otherwise take most of a core for as long as the test waits."""

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T], timeout: float = SOON, what: str = "", interval: float = 0.03
) -> T:
    """Return the first true value of `predicate`, which is asked every `interval` seconds.

    One that takes long is asked less often. AssertionError says `what` has not come in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if value := predicate():
            return value
        answered = time.monotonic()
        if answered > deadline:
            name = what or getattr(predicate, "__name__", repr(predicate))
            raise AssertionError(f"not within {timeout:g} s: {name}; last value: {value!r}")
        time.sleep(max(interval, min(_PAUSE * (answered - asked), 0.5)))
