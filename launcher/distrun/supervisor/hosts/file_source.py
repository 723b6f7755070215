"""What tasks have written on one host: listed and read over a login of its own."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable

from distrun.agent.protocol import Cause, Code, Report
from distrun.agent.protocol.file_messages import FileRead, FileReadEnd, FilesWritten, ReadFile
from distrun.frozen import Frozen
from distrun.supervisor.hosts.link import LOGIN_SECONDS, Link, Links, LinkState, LinkUser
from distrun.supervisor.hosts.reach import Attempt, Connection, Login, Purpose, Reach

OnData = Callable[[FileRead], None]
OnEnd = Callable[[FileReadEnd], None]

MOST_FILES = 100_000
_MOST_LEFT_OUT = 1000
_MOST_CHARACTERS = 32 << 20
"""Of all names of a host. Those after them are dropped: no host has as many."""
_SILENT_SECONDS = 60.0
_EXIT_SECONDS = 2.0
"""How long a login may outlive its output."""
_LONGEST_PATH = 4096
_LONGEST_NAME = 255
_LARGEST = 1 << 62


class Found(Frozen):
    """A file on a host: its size, the time of its last change in ns, bytes on the disk, mode."""

    size: int
    changed: int
    used: int
    mode: int


class FileSource(LinkUser):
    """One host. `failure` says why nothing more comes from it."""

    def __init__(self, name: str, reach: Reach, links: Links) -> None:
        self.name = name
        self._reach, self._links = reach, links
        self._wanted: deque[tuple[OnData | None, OnEnd]] = deque()
        self.files: list[dict[str, Found]] = []
        """Of each working folder, by the path in it."""
        self.left_out: list[tuple[str, str]] = []
        self._characters = 0
        self.is_listed = False
        self.failure: Cause | None = None
        self.link = Link(links, self, reach.connect_timeout, None)

    def start(self, folders: list[list[tuple[str, str]]], *others: object) -> None:
        """Start to list the files. The arguments: see :func:`distrun.agent.written_files.main`."""
        self.files = [{} for _ in folders]
        self._arguments = (folders, *others, MOST_FILES)
        self.link.connect()

    @property
    def is_idle(self) -> bool:
        """Whether it has listed all, and nothing is being read."""
        return self.failure is not None or (self.is_listed and not self._wanted)

    def read(self, order: ReadFile, on_end: OnEnd, on_data: OnData | None = None) -> None:
        """Read a file, or its digest, after those that were wanted before."""
        if self.link.connection is not None:
            self._wanted.append((on_data, on_end))
            self.link.connection.channel.send(order)
            self.link.touch()
            self.link.limit(_SILENT_SECONDS)

    def close(self) -> None:
        if self.link.state is not LinkState.GONE:
            self.link.end()

    def fail(self, cause: Cause) -> None:
        """Expect nothing more of it, for this reason."""
        if self.failure is None:
            self.failure = cause
            self.close()

    # The login -----------------------------------------------------------------------------

    def log_in(self, attempt: Attempt) -> Connection:
        self.link.limit(max(attempt.connect_timeout + LOGIN_SECONDS, _SILENT_SECONDS))
        return self._reach.open(self._links.job_id, Login(Purpose.FILES, self._arguments))

    def on_not_started(self, cause: Cause) -> None:
        self.fail(cause)

    def on_fault(self, _: Connection, cause: Cause) -> None:
        self.fail(cause)

    def on_messages(self, _: Connection, messages: list[tuple[int, Report]]) -> None:
        if messages and self.link.state is LinkState.CONNECTING:
            self.link.enter(LinkState.UP)
        for _number, message in messages:
            if self.failure is None and not self._receive(message):
                self.fail(Cause(Code.REPORT_UNASKED, name=type(message).__name__))
        if messages and self.failure is None:
            self.link.limit(None if self.is_idle else _SILENT_SECONDS)

    def on_end(self, _: Connection) -> None:
        self.link.limit(_EXIT_SECONDS)

    def on_expired(self) -> None:
        connection = self.link.connection
        if connection is not None and connection.channel.ended:
            self.on_exit(connection, -signal.SIGKILL)
        else:
            self.fail(Cause(Code.NOT_ANSWERED))

    def on_exit(self, connection: Connection, status: int) -> None:
        has_begun = self.is_listed or any(self.files)
        cause = self._reach.diagnose(connection, status, was_up=has_begun)[0]
        self.link.limit(_SILENT_SECONDS)
        self.link.ask(self._reach.question(connection, cause), cause, self.fail)

    def _receive(self, message: object) -> bool:
        """Handle a message; returns whether it was to come."""
        if isinstance(message, FilesWritten) and not self.is_listed:
            return self._add(message)
        on_data, on_end = self._wanted[0] if self._wanted else (None, None)
        if isinstance(message, FileRead) and on_data is not None:
            on_data(message)
            return True
        if isinstance(message, FileRead) and on_end is not None and not message.data:
            return True  # its digest is still being made
        if isinstance(message, FileReadEnd) and on_end is not None:
            self._wanted.popleft()
            on_end(message)
            return True
        return False

    def _add(self, message: FilesWritten) -> bool:
        if not 0 <= message.folder < len(self.files):
            return message.last
        files = self.files[message.folder]
        for entry in message.files:
            are_sizes = all(type(each) is int and 0 <= each < _LARGEST for each in entry[1:])
            if len(entry) != 5 or not is_plain(entry[0]) or not are_sizes:
                self.leave_out(str(entry[:1])[2:-2], "its name or its size cannot be")
            elif len(files) < MOST_FILES and self._characters < _MOST_CHARACTERS:
                self._characters += len(entry[0])
                files[entry[0]] = Found(*entry[1:])
        for each in message.left_out:
            self.leave_out(*(str(word)[:_LONGEST_PATH] for word in (*each, "", "")[:2]))
        self.is_listed = message.last
        return True

    def leave_out(self, path: str, why: str) -> None:
        if len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out.append((path, why))


def is_plain(path: object) -> bool:
    """Whether it is a relative path that stays below where it begins."""
    if not isinstance(path, str) or "\0" in path or len(path) > _LONGEST_PATH:
        return False
    try:
        parts = path.encode("utf-8", "surrogateescape").split(b"/")
    except UnicodeEncodeError:
        return False
    return all(0 < len(part) <= _LONGEST_NAME and part not in (b".", b"..") for part in parts)
