"""Dials ports of other hosts: is each one reachable, and does the right agent answer?

Call :func:`dial` in a forked child: resolving a name may block.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections import deque
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.probe_messages import Dial, Dialled, Measure, Measured, Unreachable

_GREETING_FACTOR = 3
"""The greeting may take this many times as long as the connection: the host is reachable then,
but its agent may be busy."""
_MOST_THREADS = 256
_LEAST_SECONDS = 0.001
"""This process may itself be late: what has arrived meanwhile counts."""
_WARM_UP = 0.2
"""The share of the time that does not count: TCP begins slowly."""
_NO_ROUTE_ERRORS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)


def dial(order: Dial) -> Dialled:
    """Dial all ports, at most 256 at a time, and return those that could not be reached."""
    seconds = order.seconds
    machines = {target.machine for target in order.targets}
    addresses_of = _in_threads(_resolve, machines, seconds)
    late = Cause(Code.NAME_NOT_RESOLVED, seconds=seconds)

    def call(one: Tuple[str, int, str]) -> Optional[Cause]:
        machine, port, greeting = one
        addresses = addresses_of.get(machine, late)
        if isinstance(addresses, Cause):
            return addresses
        causes = (_call(each, port, greeting.encode("ascii"), seconds) for each in addresses)
        cause = None
        for cause in causes:
            if cause is None:
                break
        return cause

    calls = [(each.machine, port, each.greeting) for each in order.targets for port in each.ports]
    causes = _in_threads(call, calls)
    return Dialled([Unreachable(one[0], one[1], cause) for one, cause in causes.items() if cause])


def measure(order: Measure) -> Measured:
    (target,), seconds = order.targets, order.seconds
    machine = target.machine
    addresses = _in_threads(_resolve, [machine], seconds).get(machine)
    for family, address in addresses if isinstance(addresses, list) else []:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(seconds)
                connection.connect((address[0], target.ports[0], *address[2:]))
                greeting, due = target.greeting.encode("ascii"), time.monotonic() + seconds
                if _hear(connection, greeting, due) is None:
                    connection.sendall(order.password.encode("ascii"))
                    return Measured(_rate(connection, seconds))
        except OSError:
            continue
    return Measured(0.0)


def _rate(connection: socket.socket, seconds: float) -> float:
    """Receive for so many seconds; return the bytes a second, without the first moments."""
    _receive(connection, _WARM_UP * seconds)
    began = time.monotonic()
    count = _receive(connection, (1 - _WARM_UP) * seconds)
    return count / (time.monotonic() - began)


def _receive(connection: socket.socket, seconds: float) -> int:
    """Receive for so many seconds; return how many bytes. Raises OSError if the sender leaves."""
    block = bytearray(1 << 20)
    count, due = 0, time.monotonic() + seconds
    while (left := due - time.monotonic()) > 0:
        connection.settimeout(max(_LEAST_SECONDS, left))
        try:
            received = connection.recv_into(block)
        except socket.timeout:
            break
        if not received:
            raise ConnectionResetError
        count += received
    return count


def most_seconds(order: Dial) -> float:
    """The seconds that :func:`dial` takes at most if no name has more than two addresses."""
    count = sum(len(target.ports) for target in order.targets)
    rounds = -(-count // _MOST_THREADS)
    return order.seconds * (2 * (1 + _GREETING_FACTOR) * rounds + 1)


def _in_threads(
    work: Callable[[Any], Any], items: Iterable[Any], seconds: Optional[float] = None
) -> Dict[Any, Any]:
    """Call a function with each item, in threads; its results that there are after the seconds."""
    waiting, found = deque(items), {}  # type: Tuple[deque[Any], Dict[Any, Any]]
    threads: List[threading.Thread] = []

    def run() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            found[item] = work(item)

    while waiting and len(threads) < _MOST_THREADS:
        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there can be no further one
            if not threads:
                raise
            break
        threads.append(thread)
        thread.join(_LEAST_SECONDS)  # where answers come at once, few threads are needed
    due = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.join(None if due is None else max(0.0, due - time.monotonic()))
    return found.copy()


def _resolve(machine: str) -> "List[Tuple[int, Any]] | Cause":
    """Return a machine's addresses, each with its family, as `connect` expects them."""
    try:
        # As bytes, it needs no module for names that are not ASCII.
        name = machine.encode() if machine.isascii() else machine
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return Cause(Code.NAME_NOT_RESOLVED, text=error.strerror or str(error))
    return [(family, address) for family, _, _, _, address in answers]


def _call(at: Tuple[int, Any], port: int, greeting: bytes, seconds: float) -> Optional[Cause]:
    """Connect to an address; return why it is not the right agent's, or None."""
    family, address = at
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect((address[0], port, *address[2:]))
            return _hear(connection, greeting, time.monotonic() + _GREETING_FACTOR * seconds)
    except (socket.timeout, TimeoutError):  # two classes before Python 3.10
        return Cause(Code.CONNECTION_TIMED_OUT, seconds=seconds)
    except ConnectionRefusedError:
        return Cause(Code.CONNECTION_REFUSED)
    except OSError as error:
        number = error.errno or 0
        code = Code.NO_ROUTE if number in _NO_ROUTE_ERRORS else Code.CONNECTION_FAILED
        return Cause(code, errno=number)


def _hear(connection: socket.socket, greeting: bytes, due: float) -> Optional[Cause]:
    received = b""
    while received != greeting:
        connection.settimeout(max(_LEAST_SECONDS, due - time.monotonic()))
        try:
            block = connection.recv(len(greeting) - len(received))
        except OSError as error:
            return Cause(Code.GREETING_MISSING, errno=error.errno or 0)
        received += block
        if not greeting.startswith(received):
            return Cause(Code.GREETING_DIFFERENT)
        if not block:
            return Cause(Code.GREETING_MISSING)
    return None
