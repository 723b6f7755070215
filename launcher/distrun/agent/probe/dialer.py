"""Trying whether ports of other hosts can be reached, and what is there.

To be done by an errand: looking up a name may take long.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from distrun.agent.protocol.probe_messages import Dial, Dialled, Target, Unreachable

REFUSED = "refused"
TIMEOUT = "timeout"
NO_ROUTE = "no route"
UNRESOLVED = "unresolved"
SILENT = "silent"
"""Somebody answers the call and says nothing, or hangs up."""
STRANGER = "stranger"
"""Somebody else answers."""
FAILED = "failed"

_PATIENCE = 3
"""Times as long as for the connection, for the greeting: who has been connected to is there, and
its agent may be busy."""
_AT_ONCE = 256
_LOOKUPS_AT_ONCE = 16
_NO_ROUTE_ERRORS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_Address = Tuple[int, Any]
"""A family and what `connect` takes."""


def dial(order: Dial) -> Dialled:
    """Call all ports, many at a time."""
    found = _look_up({target.machine for target in order.targets}, order.seconds)
    return Dialled(_Round(order.targets, found, order.seconds).run())


def longest(order: Dial) -> float:
    """How many seconds it takes at most, where each name has no more than two addresses."""
    count = sum(len(target.ports) for target in order.targets)
    rounds = -(-count // _AT_ONCE)
    return order.seconds * (2 * (1 + _PATIENCE) * rounds + 1)


class _Call:
    """One port, being called at one of its machine's addresses after the other."""

    def __init__(self, target: Target, port: int, addresses: List[_Address]) -> None:
        self.machine = target.machine
        self.port = port
        self.greeting = target.greeting.encode("ascii")
        self.addresses = deque(addresses)
        self.due = 0.0
        self.heard = b""
        self.is_connected = False


class _Round:
    """All the calls of one order."""

    def __init__(
        self, targets: List[Target], found: Dict[str, "List[_Address] | str"], seconds: float
    ) -> None:
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._misses: List[Unreachable] = []
        self._active: Dict[socket.socket, _Call] = {}
        self._waiting: Deque[_Call] = deque()
        for target in targets:
            addresses = found[target.machine]
            for port in target.ports:
                if isinstance(addresses, str):
                    self._misses.append(Unreachable(target.machine, port, UNRESOLVED, addresses))
                else:
                    self._waiting.append(_Call(target, port, addresses))

    def run(self) -> List[Unreachable]:
        while self._waiting or self._active:
            while self._waiting and len(self._active) < _AT_ONCE:
                self._begin(self._waiting.popleft())
            if not self._active:
                continue
            now = time.monotonic()
            soonest = min(call.due for call in self._active.values())
            heard = {key.data for key, _ in self._selector.select(max(0.0, soonest - now))}
            for line in heard:
                self._advance(line)
            # This process may itself have been kept waiting: late is who is not heard even now.
            late = [line for line, call in self._active.items() if call.due <= now]
            for line in late:
                if line not in heard:
                    self._end(line, SILENT if self._active[line].is_connected else TIMEOUT)
        return self._misses

    def _begin(self, call: _Call) -> None:
        family, address = call.addresses.popleft()
        call.is_connected, call.heard = False, b""
        call.due = time.monotonic() + self._seconds
        try:
            line = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._miss(call, *_kind(error.errno or 0))
            return
        line.setblocking(False)
        number = line.connect_ex((address[0], call.port, *address[2:]))
        if number not in (0, errno.EINPROGRESS):
            line.close()
            self._miss(call, *_kind(number))
            return
        self._active[line] = call
        self._selector.register(line, selectors.EVENT_WRITE, line)

    def _advance(self, line: socket.socket) -> None:
        call = self._active[line]
        if not call.is_connected:
            number = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._end(line, *_kind(number))
                return
            call.is_connected = True
            call.due = time.monotonic() + _PATIENCE * self._seconds
            self._selector.modify(line, selectors.EVENT_READ, line)
            return
        wanted = call.greeting
        try:
            block = line.recv(len(wanted) - len(call.heard))
        except OSError as error:
            self._end(line, SILENT, error.strerror or "")
            return
        call.heard += block
        if call.heard == wanted:
            self._end(line, None)
        elif not wanted.startswith(call.heard):
            self._end(line, STRANGER)
        elif not block:
            self._end(line, SILENT)

    def _end(self, line: socket.socket, kind: Optional[str], detail: str = "") -> None:
        call = self._active.pop(line)
        self._selector.unregister(line)
        line.close()
        if kind is not None:
            self._miss(call, kind, detail)

    def _miss(self, call: _Call, kind: str, detail: str = "") -> None:
        if call.addresses:
            self._waiting.append(call)
            return
        self._misses.append(Unreachable(call.machine, call.port, kind, detail))


def _kind(number: int) -> Tuple[str, str]:
    if number == errno.ECONNREFUSED:
        return REFUSED, ""
    if number == errno.ETIMEDOUT:
        return TIMEOUT, ""
    kind = NO_ROUTE if number in _NO_ROUTE_ERRORS else FAILED
    return kind, os.strerror(number)


def _look_up(machines: "set[str]", seconds: float) -> Dict[str, "List[_Address] | str"]:
    """The addresses of each, or why there are none."""
    found: Dict[str, "List[_Address] | str"] = {}
    names = []
    for machine in machines:
        try:
            found[machine] = _resolve(machine, socket.AI_NUMERICHOST)
        except OSError:
            names.append(machine)
    if names:
        found.update(_look_up_names(sorted(names), seconds))
    return found


def _look_up_names(names: List[str], seconds: float) -> Dict[str, "List[_Address] | str"]:
    # Imported here, for an address needs none of it.
    from concurrent.futures import ThreadPoolExecutor
    from concurrent.futures import TimeoutError as LateError

    found: Dict[str, "List[_Address] | str"] = {}
    due = time.monotonic() + seconds
    pool = ThreadPoolExecutor(_LOOKUPS_AT_ONCE)
    asked = {name: pool.submit(_resolve, name, 0) for name in names}
    for name, answer in asked.items():
        try:
            found[name] = answer.result(max(0.0, due - time.monotonic()))
        except LateError:
            found[name] = "no answer within {:g} s".format(seconds)
        except OSError as error:
            found[name] = error.strerror or str(error)
    return found


def _resolve(machine: str, flags: int) -> List[_Address]:
    """Raises OSError (socket.gaierror) where it has no address."""
    answers = socket.getaddrinfo(machine, None, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in answers]
