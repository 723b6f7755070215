"""How long the job waits for hosts that it does not need: less than `timeouts.start`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARE = 1 / 3
"""Of the time that is left: the rest is for the other hosts."""
_SHORTEST = 1.0
_WITHOUT_LIMIT = 300.0
"""The seconds that count as left if `timeouts.start` is off."""


class WaitLimit:
    """Adds up the time during which the job waits for hosts that it does not need, and no others.

    Args:
        left: the seconds that are left of `timeouts.start`; None: it is off.
        clock: in seconds.
    """

    def __init__(self, left: float | None, clock: Callable[[], float]) -> None:
        share = (_WITHOUT_LIMIT if left is None else left) * _SHARE
        self.seconds = max(_SHORTEST, float(round(share)))
        """How long to wait altogether."""
        self._clock = clock
        self._waited = 0.0
        self._since: float | None = None

    def update(self, *, is_waiting: bool) -> None:
        """Note whether the job waits for such hosts now."""
        if is_waiting and self._since is None:
            self._since = self._clock()
        elif not is_waiting and self._since is not None:
            self._waited += self._clock() - self._since
            self._since = None

    @property
    def next_due(self) -> float | None:
        """When to stop waiting; None: the job does not wait."""
        return None if self._since is None else self._since + self.seconds - self._waited

    @property
    def is_over(self) -> bool:
        """Whether the job has waited for too long, and still waits."""
        due = self.next_due
        return due is not None and due <= self._clock()
