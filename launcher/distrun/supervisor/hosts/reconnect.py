"""How a lost link is taken up again: attempt after attempt, when, and over which connection.

A connection that the user shares among logins (ControlMaster) may be what is dead: then ssh would
wait on it for ever. It may as well be the only way in, where another asks for a second factor. So
the attempts take turns, and one that may be on such a connection is soon given up.
"""

from __future__ import annotations

LOGIN_SECONDS = 30.0
"""What a login may take once it is connected."""
_FIRST_BACKOFF = 0.25
_LONGEST_BACKOFF = 5.0
_SHORTEST = 1.0


class Attempts:
    """What the next attempt is to be like.

    Args:
        connect_timeout: seconds that connecting may take at most.
        lease: seconds in which the link has to be there again; None: it has for ever.
    """

    def __init__(self, connect_timeout: float, lease: float | None) -> None:
        self.patience = connect_timeout
        """Seconds for the connection."""
        if lease is not None:
            self.patience = max(_SHORTEST, min(connect_timeout, lease / 3))
        self.is_apart = False
        """Whether it is to have a connection of its own, whatever the user shares."""
        self._backoff = _FIRST_BACKOFF

    @property
    def limit(self) -> float:
        """Seconds for all of it, the login included."""
        return self.patience + (LOGIN_SECONDS if self.is_apart else 0.0)

    def on_loss(self, *, was_silent: bool) -> None:
        """Begin anew. A link that only fell silent is not to be looked for where it was."""
        self.is_apart = was_silent
        self._backoff = _FIRST_BACKOFF

    def on_failure(self) -> float:
        """Seconds until the next one."""
        self.is_apart = not self.is_apart
        pause, self._backoff = self._backoff, min(2 * self._backoff, _LONGEST_BACKOFF)
        return pause
