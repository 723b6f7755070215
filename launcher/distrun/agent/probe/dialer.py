"""Dials ports of other hosts: is each one reachable, and does the right agent answer?

Call :func:`dial` in a forked child: resolving a name may block.
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

_GREETING_FACTOR = 3
"""The greeting may take this many times as long as the connection: the host is reachable then,
but its agent may be busy."""
_MOST_CONNECTIONS = 256
_MOST_LOOKUPS = 16
_NO_ROUTE_ERRORS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_Address = Tuple[int, Any]
"""An address family, and an address as `connect` expects it."""
_NO_GREETING = Cause(Code.GREETING_MISSING)


def dial(
    order: Dial,
    clock: Callable[[], float] = time.monotonic,
    selector: Optional[selectors.BaseSelector] = None,
) -> Dialled:
    """Dial all ports, at most 256 at a time, and return those that could not be reached."""
    addresses_of = _resolve_all({target.machine for target in order.targets}, order.seconds)
    selector = selector or selectors.DefaultSelector()
    return Dialled(_Dialer(order.targets, addresses_of, order.seconds, clock, selector).run())


def most_seconds(order: Dial) -> float:
    """The seconds that :func:`dial` takes at most if no name has more than two addresses."""
    count = sum(len(target.ports) for target in order.targets)
    rounds = -(-count // _MOST_CONNECTIONS)
    return order.seconds * (2 * (1 + _GREETING_FACTOR) * rounds + 1)


class _Call:
    """One port to dial. The addresses of its machine are tried one after another."""

    def __init__(self, target: Target, port: int, addresses: List[_Address]) -> None:
        self.machine = target.machine
        self.port = port
        self.greeting = target.greeting.encode("ascii")
        self.addresses = deque(addresses)
        self.due = 0.0
        self.received = b""
        self.is_connected = False


class _Dialer:
    """Makes all calls of one order."""

    def __init__(
        self,
        targets: List[Target],
        addresses_of: Dict[str, "List[_Address] | Cause"],
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
            addresses = addresses_of[target.machine]
            for port in target.ports:
                if isinstance(addresses, Cause):
                    self._unreachable.append(Unreachable(target.machine, port, addresses))
                else:
                    self._waiting.append(_Call(target, port, addresses))

    def run(self) -> List[Unreachable]:
        while self._waiting or self._active:
            while self._waiting and len(self._active) < _MOST_CONNECTIONS:
                self._connect(self._waiting.popleft())
            if not self._active:
                continue
            now = self._clock()
            soonest = min(call.due for call in self._active.values())
            ready = {key.data for key, _ in self._selector.select(max(0.0, soonest - now))}
            for sock in ready:
                self._advance(sock)
            # This process may itself be late. A call has timed out only if nothing has arrived.
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
            call.due = self._clock() + _GREETING_FACTOR * self._seconds
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
    """For each machine its addresses, or why they could not be found."""
    addresses_of: Dict[str, "List[_Address] | Cause"] = {}
    names = []
    for machine in machines:
        try:
            addresses_of[machine] = _resolve(machine, socket.AI_NUMERICHOST)
        except OSError:
            names.append(machine)
    if names:
        addresses_of.update(_resolve_names(sorted(names), seconds))
    return addresses_of


def _resolve_names(names: List[str], seconds: float) -> Dict[str, "List[_Address] | Cause"]:
    # Imported here because numeric addresses need no lookup.
    from concurrent.futures import ThreadPoolExecutor
    from concurrent.futures import TimeoutError as LateError

    addresses_of: Dict[str, "List[_Address] | Cause"] = {}
    due = time.monotonic() + seconds
    pool = ThreadPoolExecutor(_MOST_LOOKUPS)
    lookups = {name: pool.submit(_resolve, name, 0) for name in names}
    for name, answer in lookups.items():
        try:
            addresses_of[name] = answer.result(max(0.0, due - time.monotonic()))
        except LateError:
            addresses_of[name] = Cause(Code.NAME_NOT_RESOLVED, seconds=seconds)
        except OSError as error:
            addresses_of[name] = Cause(Code.NAME_NOT_RESOLVED, text=error.strerror or str(error))
    return addresses_of


def _resolve(machine: str, flags: int) -> List[_Address]:
    """The addresses of a machine. Raises OSError (socket.gaierror) if it has none."""
    answers = socket.getaddrinfo(machine, None, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in answers]
