"""The connection to an agent: made with few others at a time, lost, and made again.

    WAITING <-> CONNECTING -> UP -> LOST <-> RECONNECTING -> UP        and from each to GONE

A link knows descriptors, processes and times. What has arrived, and what an end means, is the
business of its user: a live host, what an agent has left on one, or the files of one.

The user's ssh may share one connection among logins (ControlMaster). If that connection is dead,
ssh waits for it without end. But it may be the only way in, if a new login needs a second factor.
So attempts alternate between the shared connection and one of their own. An attempt that may use
the shared one has less time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Report
from distrun.agent.protocol.causes import CauseError
from distrun.agent.protocol.channel import ProtocolError
from distrun.supervisor.hosts.background_calls import BackgroundCalls, OnAnswer, Question
from distrun.supervisor.hosts.reach import Attempt, Connection

MAX_CONNECTING = 16
"""How many links may be connecting at a time: each ssh client takes 80 ms of a core here."""

LOGIN_SECONDS = 30.0
_FIRST_BACKOFF = 0.25
_LONGEST_BACKOFF = 5.0
_SHORTEST_TIMEOUT = 1.0
_STABLE_SECONDS = 30.0
"""A link that was lost sooner is reconnected with the delay of a failed attempt."""


class LinkState(Enum):
    """The states of a link."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    RECONNECTING = "reconnecting"
    GONE = "gone"


_TRANSITIONS = {
    LinkState.WAITING: {LinkState.CONNECTING, LinkState.GONE},
    LinkState.CONNECTING: {LinkState.WAITING, LinkState.UP, LinkState.GONE},
    LinkState.UP: {LinkState.LOST, LinkState.GONE},
    LinkState.LOST: {LinkState.RECONNECTING, LinkState.GONE},
    LinkState.RECONNECTING: {LinkState.UP, LinkState.LOST, LinkState.GONE},
    LinkState.GONE: set(),
}
_LOGGING_IN = (LinkState.CONNECTING, LinkState.RECONNECTING)


class LinkUser:
    """Decides what a link is for, and what follows from what happens to it."""

    def log_in(self, attempt: Attempt) -> Connection:
        """Start a login. Raises CauseError: its process cannot be created."""
        raise NotImplementedError

    def on_not_started(self, cause: Cause) -> None:
        """The process could not be created."""

    def on_login(self, connection: Connection) -> None:
        """Send what the login begins with, which may be slow: others have been started by now."""

    def on_messages(self, connection: Connection, messages: list[tuple[int, Report]]) -> None:
        """Messages have arrived."""

    def on_fault(self, connection: Connection, cause: Cause) -> None:
        """What has arrived is not a message of this protocol."""

    def on_stderr(self, connection: Connection) -> None:
        """The login has printed something."""

    def on_end(self, connection: Connection) -> None:
        """Nothing more will arrive; the login's process may still run."""

    def on_exit(self, connection: Connection, status: int) -> None:
        """The login's process has exited, and everything from it has been read."""

    def on_expired(self) -> None:
        """The present state has lasted for too long."""

    def before_wait(self) -> None:
        """Queue what can be sent now; called in each turn in which something has happened."""


class Link:
    """A link, which is connected as soon as :meth:`connect` and the limit on logins let it.

    Args:
        connect_timeout: seconds that connecting may take; None: no limit.
        lease: seconds within which a lost link must be back; None: no limit.
        state: a link to an agent that runs is LOST at first.
    """

    def __init__(
        self,
        links: Links,
        user: LinkUser,
        connect_timeout: float | None,
        lease: float | None,
        state: LinkState = LinkState.WAITING,
    ) -> None:
        self.state = state
        self.connection: Connection | None = None
        self.is_ignored = False
        """Whether everything that arrives is dropped."""
        self._links, self._loop = links, links.loop
        self._user = user
        self._connect_timeout = connect_timeout or 0.0
        if lease is not None:
            self._connect_timeout = max(_SHORTEST_TIMEOUT, min(self._connect_timeout, lease / 3))
        self._is_separate = False
        self._backoff = 0.0
        self._expiry = self._loop.call_at(None, self._on_expired)
        self._up_since = 0.0
        self._asked: OnAnswer | None = None
        """What follows from a question about this connection that is being asked."""

    # States --------------------------------------------------------------------------------

    def enter(self, state: LinkState, seconds: float | None = None) -> None:
        """Change the state. It lasts for at most so many seconds; None: without limit."""
        if state not in _TRANSITIONS[self.state]:
            raise AssertionError(f"from {self.state.value} to {state.value}")
        self.state = state
        if state is LinkState.UP:
            self._up_since = self._loop.now()
        self.limit(seconds)
        self._links.note(self)

    def limit(self, seconds: float | None) -> None:
        """Let the present state last so many seconds from now."""
        self._expiry.move(None if seconds is None else self._loop.now() + seconds)

    def connect(self) -> None:
        self._links.request(self)

    def lose(self, *, was_silent: bool) -> None:
        """Close a link that was up, and reconnect it. `was_silent`: whether it seems to hang."""
        self.close()
        # A shared connection, which it may have used, is not tried first then.
        self._is_separate = was_silent
        if self._loop.now() - self._up_since >= _STABLE_SECONDS:
            self._backoff = 0.0
        self.enter(LinkState.LOST, self._next_delay())

    def retry(self, most: float | None = None) -> None:
        """Close an attempt to reconnect that has failed; the next is in `most` seconds or fewer."""
        self.close()
        self._is_separate = not self._is_separate
        delay = self._next_delay()
        seconds = delay if most is None else min(delay, most)
        if self.state is LinkState.LOST:
            self.limit(seconds)
        else:
            self.enter(LinkState.LOST, seconds)

    def _next_delay(self) -> float:
        delay = self._backoff
        self._backoff = min(max(2 * delay, _FIRST_BACKOFF), _LONGEST_BACKOFF)
        return delay

    @property
    def next_attempt(self) -> Attempt:
        return Attempt(self._connect_timeout, self._is_separate)

    def _on_expired(self) -> None:
        self.touch()
        if self.state in (LinkState.WAITING, LinkState.LOST):
            self._links.request(self)
        else:
            self._user.on_expired()

    # The connection ------------------------------------------------------------------------

    def log_in(self) -> None:
        """Start a login now. :meth:`begin` must follow."""
        attempt = self.next_attempt
        is_first = self.state is LinkState.WAITING
        state = LinkState.CONNECTING if is_first else LinkState.RECONNECTING
        seconds = LOGIN_SECONDS if attempt.is_separate else 0.0
        self.enter(state, attempt.connect_timeout + seconds)
        try:
            connection = self._user.log_in(attempt)
        except CauseError as error:
            self._user.on_not_started(error.cause)
            return
        except OSError as error:  # there are too many descriptors
            self._user.on_not_started(Cause(Code.AGENT_NOT_STARTED, errno=error.errno or 0))
            return
        self.connection = connection
        self._watch(connection)
        if connection.stderr is not None:
            self._loop.watch(connection.stderr, lambda: self._on_stderr(connection))

    def begin(self) -> None:
        if self.connection is not None:
            self.touch()
            self._user.on_login(self.connection)

    def _watch(self, connection: Connection) -> None:
        self._loop.watch(connection.channel.reader, lambda: self._on_readable(connection))

    @property
    def pid(self) -> int | None:
        """The login's process on this machine."""
        return None if self.connection is None else self.connection.process.pid

    def touch(self) -> None:
        """Have what is queued sent before the next wait."""
        self._links.touch(self)

    def flush(self) -> None:
        """Send what is queued, as far as the link takes it now."""
        self._user.before_wait()
        if self.connection is not None:
            self.connection.channel.watch_writing(self._loop, self.touch)

    @property
    def is_asking(self) -> bool:
        return self._asked is not None

    def ask(self, question: Question | None, cause: Cause, follow: Callable[[Cause], None]) -> None:
        """Call `follow` with a cause, once the answer is known, unless it is closed before.

        Nothing more is received until then, and the exit of the login waits.
        """
        if question is None:
            follow(cause)
            return
        connection, has_waited = self.connection, False

        def on_answer(answer: Any) -> None:
            if self._asked is not on_answer:
                return
            self._asked = None
            self.touch()
            follow(question.cause(cause, answer))
            if has_waited and connection is not None and connection is self.connection:
                if not self.is_asking:
                    self._watch(connection)
                self._check_end(connection)

        self._asked = on_answer
        self._links.calls.ask(question, on_answer)
        if self.is_asking and connection is not None:
            has_waited = True
            self._loop.unwatch(connection.channel.reader)

    def close(self) -> None:
        connection, self.connection = self.connection, None
        asked, self._asked = self._asked, None
        if asked is not None:
            self._links.calls.forget(asked)
        if connection is not None:
            channel = connection.channel
            for descriptor in (channel.reader, channel.writer, connection.stderr):
                self._loop.unwatch(descriptor)
            connection.close()

    def end(self) -> None:
        """Close the connection for good."""
        self.close()
        self.enter(LinkState.GONE)

    def _on_stderr(self, connection: Connection) -> None:
        self.touch()
        if not connection.read_stderr():
            self._loop.unwatch(connection.stderr)
        self._user.on_stderr(connection)

    def _on_readable(self, connection: Connection) -> None:
        self.touch()
        if self.is_ignored:
            connection.channel.discard()
        else:
            try:
                messages = connection.channel.receive()
            except ProtocolError as error:
                self._user.on_fault(connection, error.cause)
            else:
                self._user.on_messages(connection, messages)
        self._check_end(connection)

    def _check_end(self, connection: Connection) -> None:
        """Note that nothing more will arrive."""
        if connection is self.connection and connection.channel.ended and not self.is_asking:
            self._loop.unwatch(connection.channel.reader)
            self._user.on_end(connection)
            self.check_exit()

    def check_exit(self) -> None:
        """Handle the exit of the login's process, once everything from it has been read."""
        connection = self.connection
        if connection is None or self.is_asking:
            return
        if connection.channel.ended:
            status = connection.process.poll()
            if status is not None:
                self.touch()
                connection.read_stderr()
                self._user.on_exit(connection, status)


class Links:
    """All links of a process, of which a few are connecting at a time.

    A turn of the loop takes no time for those to which nothing has happened.
    """

    def __init__(self, loop: Loop, job_id: str) -> None:
        self.loop, self.job_id = loop, job_id
        self.calls = BackgroundCalls(loop, job_id)
        self._all: dict[Link, None] = {}
        self._waiting: dict[Link, None] = {}
        self._connecting: set[Link] = set()
        self._touched: dict[Link, None] = {}
        self._filling = loop.call_at(None, self._fill)
        loop.before_wait.append(self._flush)

    def request(self, link: Link) -> None:
        self._waiting[link] = None
        self._filling.move(self.loop.now())

    def note(self, link: Link) -> None:
        """Note that the state of a link has changed."""
        self._waiting.pop(link, None)
        self._all[link] = None
        if link.state in _LOGGING_IN:
            self._connecting.add(link)
        else:
            self._connecting.discard(link)
            self._filling.move(self.loop.now() if self._waiting else None)
        if link.state is LinkState.GONE:
            del self._all[link]

    def touch(self, link: Link) -> None:
        """Have :meth:`Link.flush` called before the next wait."""
        self._touched[link] = None

    def check_exits(self) -> None:
        """Handle the logins that have exited; call it when a child of this process has ended."""
        for link in list(self._all):
            link.check_exit()

    @property
    def pids(self) -> set[int]:
        return {link.pid for link in self._all if link.pid is not None}

    def _fill(self) -> None:
        fresh = []
        while self._waiting and len(self._connecting) < MAX_CONNECTING:
            link = next(iter(self._waiting))
            link.log_in()
            fresh.append(link)
        for link in fresh:
            link.begin()

    def _flush(self) -> None:
        while self._touched:
            link = next(iter(self._touched))
            del self._touched[link]
            link.flush()
