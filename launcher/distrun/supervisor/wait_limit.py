"""How long the job waits for hosts that it does not need: less than `timeouts.start`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.loop import Loop

_SHARE = 1 / 3
"""Of the time that is left: the rest is for the other hosts."""
_SHORTEST = 1.0
_WITHOUT_LIMIT = 300.0
"""The seconds that count as left if `timeouts.start` is off."""


class WaitLimit:
    """Adds up the time during which the job waits for hosts that it does not need, and no others.

    Args:
        left: the seconds that are left of `timeouts.start`; None: it is off.
        check: called once the job has waited for too long.
    """

    def __init__(self, loop: Loop, left: float | None, check: Callable[[], None]) -> None:
        share = (_WITHOUT_LIMIT if left is None else left) * _SHARE
        self.seconds = max(_SHORTEST, float(round(share)))
        """How long to wait altogether."""
        self._now, self._end = loop.now, loop.call_at(None, check)
        self._waited = 0.0
        self._since: float | None = None
        self._ends_at = 0.0

    def update(self, *, is_waiting: bool) -> None:
        """Note whether the job waits for such hosts now."""
        if is_waiting and self._since is None:
            self._since = self._now()
            self._ends_at = self._since + self.seconds - self._waited
            self._end.move(self._ends_at)
        elif not is_waiting and self._since is not None:
            self._waited += self._now() - self._since
            self._since = None
            self._end.cancel()

    @property
    def is_over(self) -> bool:
        """Whether the job has waited for too long, and still waits."""
        return self._since is not None and self._ends_at <= self._now()
