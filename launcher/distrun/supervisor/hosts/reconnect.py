"""When and how a lost link is reconnected.

The user's ssh may share one connection among logins (ControlMaster). If that connection is dead,
ssh waits for it without end. But it may be the only way in, if a new login needs a second factor.
So attempts alternate between the shared connection and one of their own. An attempt that may use
the shared one has less time.
"""

from __future__ import annotations

from distrun.frozen import Frozen

LOGIN_SECONDS = 30.0
"""How long a login may take once it is connected."""
_FIRST_BACKOFF = 0.25
_LONGEST_BACKOFF = 5.0
_SHORTEST_TIMEOUT = 1.0
_STABLE_SECONDS = 30.0
"""A link that was lost sooner is reconnected with the delay of a failed attempt."""


class Attempt(Frozen, kw_only=True):
    """One attempt to reconnect."""

    connect_timeout: float
    """Seconds for the connection."""
    is_separate: bool
    """Whether it must not use a connection that the user shares among logins."""

    @property
    def timeout(self) -> float:
        """Seconds for the whole attempt, the login included."""
        return self.connect_timeout + (LOGIN_SECONDS if self.is_separate else 0.0)


class ReconnectPolicy:
    """Decides how the next attempt is made, and when.

    Args:
        connect_timeout: seconds that connecting may take at most.
        lease: seconds within which the link must be back; None: no limit.
    """

    def __init__(self, connect_timeout: float, lease: float | None) -> None:
        self._connect_timeout = connect_timeout
        if lease is not None:
            self._connect_timeout = max(_SHORTEST_TIMEOUT, min(connect_timeout, lease / 3))
        self._is_separate = False
        self._backoff = 0.0

    @property
    def next_attempt(self) -> Attempt:
        return Attempt(connect_timeout=self._connect_timeout, is_separate=self._is_separate)

    def record_loss(self, *, lasted: float, was_silent: bool) -> float:
        """Return the seconds until the first attempt to reconnect a link that has just been lost.

        Args:
            lasted: seconds for which the link was up.
            was_silent: whether heartbeats were missing. Then a shared connection, which the link
                may have used, is not tried first.
        """
        self._is_separate = was_silent
        if lasted >= _STABLE_SECONDS:
            self._backoff = 0.0
        return self._next_delay()

    def record_failure(self) -> float:
        """Return the seconds until the next attempt."""
        self._is_separate = not self._is_separate
        return self._next_delay()

    def _next_delay(self) -> float:
        delay = self._backoff
        self._backoff = min(max(2 * delay, _FIRST_BACKOFF), _LONGEST_BACKOFF)
        return delay
