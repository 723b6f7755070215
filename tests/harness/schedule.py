"""Which of several pytest processes runs which test, and when."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/ssh/", "tests/process/test_wheel.py")
"""Tests of one process each: what they share takes long to make."""
FIRST = ("tests/unit/test_style.py", *TOGETHER, "tests/e2e/", "tests/process/")
"""The long tests come first, so that no process ends alone with one of them."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each process one test after another, and those that share something to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return next((path for path in TOGETHER if nodeid.startswith(path)), nodeid)


def rank(nodeid: str) -> int:
    """Where a test stands in the order of all: those with a low number come first."""
    return next((at for at, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))
