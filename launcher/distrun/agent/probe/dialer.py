"""Dials ports of other hosts, to find out whether each is reachable and who answers.

Call this in a forked child: resolving a name may block.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.probe_messages import Dial, Dialled, Target, Unreachable

_PATIENCE = 3
"""The greeting may take this many times as long as the connection: once connected, the other host
is known to be there, and its agent may be busy."""
_AT_ONCE = 256
_LOOKUPS_AT_ONCE = 16
_NO_ROUTE_ERRORS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_Address = Tuple[int, Any]
"""A family and an address as `connect` expects it."""
_NO_GREETING = Cause(Code.GREETING_MISSING)


def dial(
    order: Dial,
    clock: Callable[[], float] = time.monotonic,
    selector: Optional[selectors.BaseSelector] = None,
) -> Dialled:
    """Dial all ports, many at a time."""
    found = _resolve_all({target.machine for target in order.targets}, order.seconds)
    selector = selector or selectors.DefaultSelector()
    return Dialled(_Round(order.targets, found, order.seconds, clock, selector).run())


def longest(order: Dial) -> float:
    """The most seconds that :func:`dial` takes if no name has more than two addresses."""
    count = sum(len(target.ports) for target in order.targets)
    rounds = -(-count // _AT_ONCE)
    return order.seconds * (2 * (1 + _PATIENCE) * rounds + 1)


class _Call:
    """One port, which is dialled at one of its machine's addresses after the other."""

    def __init__(self, target: Target, port: int, addresses: List[_Address]) -> None:
        self.machine = target.machine
        self.port = port
        self.greeting = target.greeting.encode("ascii")
        self.addresses = deque(addresses)
        self.due = 0.0
        self.received = b""
        self.is_connected = False


class _Round:
    """All calls of one order."""

    def __init__(
        self,
        targets: List[Target],
        found: Dict[str, "List[_Address] | Cause"],
        seconds: float,
        clock: Callable[[], float],
        selector: selectors.BaseSelector,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._selector = selector
        self._unreachable: List[Unreachable] = []
        self._active: Dict[socket.socket, _Call] = {}
        self._waiting: Deque[_Call] = deque()
        for target in targets:
            addresses = found[target.machine]
            for port in target.ports:
                if isinstance(addresses, Cause):
                    self._unreachable.append(Unreachable(target.machine, port, addresses))
                else:
                    self._waiting.append(_Call(target, port, addresses))

    def run(self) -> List[Unreachable]:
        while self._waiting or self._active:
            while self._waiting and len(self._active) < _AT_ONCE:
                self._connect(self._waiting.popleft())
            if not self._active:
                continue
            now = self._clock()
            soonest = min(call.due for call in self._active.values())
            ready = {key.data for key, _ in self._selector.select(max(0.0, soonest - now))}
            for sock in ready:
                self._advance(sock)
            # This process may itself have been delayed: a call is late only if nothing has
            # arrived for it even now.
            late = [sock for sock, call in self._active.items() if call.due <= now]
            for sock in late:
                if sock not in ready:
                    is_connected = self._active[sock].is_connected
                    self._finish(sock, _NO_GREETING if is_connected else self._timed_out)
        return self._unreachable

    def _connect(self, call: _Call) -> None:
        family, address = call.addresses.popleft()
        call.is_connected, call.received = False, b""
        call.due = self._clock() + self._seconds
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._on_failed(call, self._cause_of(error.errno or 0))
            return
        sock.setblocking(False)
        number = sock.connect_ex((address[0], call.port, *address[2:]))
        if number not in (0, errno.EINPROGRESS):
            sock.close()
            self._on_failed(call, self._cause_of(number))
            return
        self._active[sock] = call
        self._selector.register(sock, selectors.EVENT_WRITE, sock)

    def _advance(self, sock: socket.socket) -> None:
        call = self._active[sock]
        if not call.is_connected:
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._finish(sock, self._cause_of(number))
                return
            call.is_connected = True
            call.due = self._clock() + _PATIENCE * self._seconds
            self._selector.modify(sock, selectors.EVENT_READ, sock)
            return
        expected = call.greeting
        try:
            block = sock.recv(len(expected) - len(call.received))
        except OSError as error:
            self._finish(sock, _NO_GREETING._replace(errno=error.errno or 0))
            return
        call.received += block
        if call.received == expected:
            self._finish(sock, None)
        elif not expected.startswith(call.received):
            self._finish(sock, Cause(Code.GREETING_DIFFERENT))
        elif not block:
            self._finish(sock, _NO_GREETING)

    def _finish(self, sock: socket.socket, cause: Optional[Cause]) -> None:
        call = self._active.pop(sock)
        self._selector.unregister(sock)
        sock.close()
        if cause is not None:
            self._on_failed(call, cause)

    def _on_failed(self, call: _Call, cause: Cause) -> None:
        if call.addresses:
            self._waiting.append(call)
            return
        self._unreachable.append(Unreachable(call.machine, call.port, cause))

    @property
    def _timed_out(self) -> Cause:
        return Cause(Code.CONNECTION_TIMED_OUT, seconds=self._seconds)

    def _cause_of(self, number: int) -> Cause:
        if number == errno.ECONNREFUSED:
            return Cause(Code.CONNECTION_REFUSED)
        if number == errno.ETIMEDOUT:
            return self._timed_out
        code = Code.NO_ROUTE if number in _NO_ROUTE_ERRORS else Code.CONNECTION_FAILED
        return Cause(code, errno=number)


def _resolve_all(machines: "set[str]", seconds: float) -> Dict[str, "List[_Address] | Cause"]:
    """Each machine's addresses, or why it has none."""
    found: Dict[str, "List[_Address] | Cause"] = {}
    names = []
    for machine in machines:
        try:
            found[machine] = _resolve(machine, socket.AI_NUMERICHOST)
        except OSError:
            names.append(machine)
    if names:
        found.update(_resolve_names(sorted(names), seconds))
    return found


def _resolve_names(names: List[str], seconds: float) -> Dict[str, "List[_Address] | Cause"]:
    # Imported here because numeric addresses do not need it.
    from concurrent.futures import ThreadPoolExecutor
    from concurrent.futures import TimeoutError as LateError

    found: Dict[str, "List[_Address] | Cause"] = {}
    due = time.monotonic() + seconds
    pool = ThreadPoolExecutor(_LOOKUPS_AT_ONCE)
    asked = {name: pool.submit(_resolve, name, 0) for name in names}
    for name, answer in asked.items():
        try:
            found[name] = answer.result(max(0.0, due - time.monotonic()))
        except LateError:
            found[name] = Cause(Code.NAME_NOT_RESOLVED, seconds=seconds)
        except OSError as error:
            found[name] = Cause(Code.NAME_NOT_RESOLVED, text=error.strerror or str(error))
    return found


def _resolve(machine: str, flags: int) -> List[_Address]:
    """The addresses of a machine. Raises OSError (socket.gaierror) where it has none."""
    answers = socket.getaddrinfo(machine, None, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in answers]
