"""Waiting for an event, with a deadline. Standard library only: tests/smoke.py uses it too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

SOON = 60.0
"""Seconds that a short wait may take on a machine that others use too."""
_INTERVAL = 0.03

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    timeout: float = SOON,
    what: str = "",
    interval: float = _INTERVAL,
) -> T:
    """Return the first true value of `predicate`, which is asked every `interval` seconds.

    Raises:
        AssertionError: there was none within `timeout` seconds. The message says `what`.
    """
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() > deadline:
            name = what or getattr(predicate, "__name__", repr(predicate))
            raise AssertionError(f"not within {timeout:g} s: {name}; last value: {value!r}")
        time.sleep(interval)
    return value
