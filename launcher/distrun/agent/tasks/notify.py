"""Progress that tasks report: `STEP=120 EPOCH=1` datagrams, as in systemd's notify protocol."""

from __future__ import annotations

import os
import socket
import time
from typing import Callable, Dict, Optional, Set, Type

from distrun.agent.linux import peers
from distrun.agent.protocol import Cause, Code

MOST_KEYS = 32
"""How many keys one datagram, or one report to the supervisor, has at most."""
_MAX_DATAGRAM = 4096
_MAX_WORD = 256
"""Characters of a key and its value."""
_MAX_PER_SECOND = 1000
"""How many datagrams of one task are read."""
_MAX_PER_TURN = 256
"""Datagrams that are read in one turn, so that one socket cannot starve what else there is."""
_PAUSE = 0.005
"""Seconds between two such turns, if there are always more datagrams."""


class NotifySocket:
    """The datagram socket that one task's DISTRUN_NOTIFY names.

    Its name is abstract (a leading `@`), so that no death leaves a file. Every user of the host
    can send to it; only what processes of the task send counts. `on_problem` is told what is
    ignored, and why: each code once.
    """

    def __init__(
        self,
        task: str,
        is_of_task: Callable[[int], bool],
        on_problem: Callable[[Cause], None],
        kind: Type[socket.socket] = socket.socket,
    ) -> None:
        token = os.urandom(9).hex()
        self.address = "@distrun-notify-{}-{}".format(task, token)
        self.resume_due: Optional[float] = None
        """When to read again; until then the socket must not be waited for. None: at once."""
        self._is_of_task = is_of_task
        self._second_ends = 0.0
        self._received = 0
        self._senders: Set[int] = set()
        """The processes whose datagrams counted in this second."""
        self._on_problem = on_problem
        self._problems: Set[Code] = set()
        """Those that were told."""
        self._socket = kind(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self.address[1:])
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Dict[str, str]:
        """The values received since the last call; later values replace earlier ones."""
        values: Dict[str, str] = {}
        now = time.monotonic()
        if self._second_ends <= now:
            self._second_ends = now + 1.0
            self._received = 0
            self._senders.clear()
        self.resume_due = None
        for _ in range(_MAX_PER_TURN):
            if self._received >= _MAX_PER_SECOND:
                self.note_excess()
                self.resume_due = self._second_ends
                return values
            try:
                datagram, sender, is_cut = peers.receive(self._socket, _MAX_DATAGRAM)
            except BlockingIOError:
                return values
            if self._counts(sender):
                self._received += 1
                self._parse(datagram, is_cut, values)
        self.resume_due = now + _PAUSE
        return values

    def _counts(self, sender: peers.Peer) -> bool:
        is_known = sender.pid in self._senders
        if sender.is_same_user and (is_known or self._is_of_task(sender.pid)):
            self._senders.add(sender.pid)
            return True
        self._note(Cause(Code.PROGRESS_FROM_STRANGER, pid=sender.pid, count=sender.uid))
        return False

    def _parse(self, datagram: bytes, is_cut: bool, values: Dict[str, str]) -> None:
        words = datagram.decode("utf-8", "replace").split()
        if is_cut or len(words) > MOST_KEYS:
            self.note_excess()
        for word in words[:MOST_KEYS]:
            key, equals, value = word.partition("=")
            if len(word) > _MAX_WORD or not (key in values or len(values) < MOST_KEYS):
                self.note_excess()
            elif equals and key:
                values[key] = value

    def note_excess(self) -> None:
        """Note that the task reports more than is read."""
        self._note(Cause(Code.PROGRESS_EXCESSIVE, count=_MAX_PER_SECOND, total=MOST_KEYS))

    def _note(self, problem: Cause) -> None:
        if problem.code not in self._problems:
            self._problems.add(problem.code)
            self._on_problem(problem)

    def close(self) -> None:
        self._socket.close()
