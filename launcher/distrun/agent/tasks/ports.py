"""TCP ports held for tasks, from their choice until the agent ends.

A hold is a socket on `[::]`, dual-stack, bound with SO_REUSEPORT and without SO_REUSEADDR, that
never listens. TensorFlow's server shares it (TF_GRPC_REUSE_PORT=true); other programs cannot
bind the port. A second holder of the same user could, silently, so each hold also takes an
abstract unix socket named for user and port, which only one process can bind. Another user can
take that name, too: the port can then not be held, and the message names that user.

A program that is not TensorFlow's would not share the port. So its port is unbound when it starts,
and bound again after the attempt. While it listens, what it leaves free of the port is bound.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Dict, List, Optional, Set, Tuple

from distrun.agent.protocol import Cause, CauseError, Code

_BACKLOG = 1024
_UNASSIGNED = range(20000, 30000)
"""Ports that Linux assigns to no connection (net.ipv4.ip_local_port_range): nothing takes one of
them between the start of a program and its `bind`. Kubernetes assigns none of them on its nodes."""


class PortTakenError(CauseError):
    """Somebody has the port, or may have it."""


class PortHolder:
    """The ports that this process holds."""

    def __init__(self) -> None:
        self._holds: Dict[int, Tuple[socket.socket, socket.socket]] = {}
        """By port: the socket that holds it, and the one that registers it."""
        self._unbound: Set[int] = set()
        """The ports that this process leaves to programs, all of it or IPv4 or IPv6."""

    def hold(self, port: int) -> None:
        """Hold the given port. Raises CauseError if that fails."""
        try:
            self._hold(port)
        except PortTakenError as error:
            is_registered = error.cause.code is Code.PORT_HELD_BY_JOB and port not in self._holds
            foreign = _foreign_names([port]) if is_registered else []
            if foreign:
                raise PortTakenError(foreign[0]) from error
            raise
        except OSError as error:
            cause = Cause(Code.PORT_NOT_HELD, port=port, errno=error.errno or 0)
            raise CauseError(cause) from error

    def _hold(self, port: int) -> None:
        registry = _register(port)
        if registry is None:
            raise PortTakenError(Cause(Code.PORT_HELD_BY_JOB, port=port))
        try:
            _probe(port)
            held = _bind(port)
        except OSError as error:
            registry.close()
            if error.errno == errno.EACCES:
                raise PortTakenError(Cause(Code.PORT_PRIVILEGED, port=port)) from error
            if error.errno != errno.EADDRINUSE:
                raise
            from distrun.agent.linux import port_owners

            owners = port_owners.of_ports([port])
            raise PortTakenError([*owners, Cause(Code.PORT_TAKEN, port=port)][0]) from error
        self._holds[port] = (held, registry)

    def hold_free(self, count: int, first: int = 0, last: int = 0) -> List[int]:
        """Hold `count` free ports, from `first` to `last` or any, or raise CauseError."""
        held: List[int] = []
        taken: List[int] = []
        cause = Cause(Code.TOO_FEW_FREE_PORTS, total=count)
        try:
            for port in range(first, last + 1) if first else _any_ports():
                if len(held) == count:
                    break
                try:
                    self._hold(port)
                    held.append(port)
                except PortTakenError:
                    taken.append(port)
        except OSError as error:
            cause = Cause(Code.FREE_PORTS_NOT_HELD, total=count, errno=error.errno or 0)
        else:
            if len(held) == count:
                return held
            span = "{}-{}".format(first, last) if first else ""
            foreign = tuple(_foreign_names(taken)[:1])
            cause = cause._replace(count=len(held), text=span, within=foreign)
        self.release(held)
        raise CauseError(cause)

    @property
    def held(self) -> List[int]:
        return list(self._holds)

    def listen(self, port: int) -> socket.socket:
        """A second socket on a held port, which listens, until a task needs it. Raises OSError."""
        listener = _bind(port)
        listener.setblocking(False)
        try:
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def unbind(self, port: int) -> None:
        """Let any program bind a held port. Other jobs still do not get it."""
        for held in self._holds.get(port, ())[:1]:
            held.close()
            self._unbound.add(port)

    def rebind(self, port: int) -> bool:
        """Bind a port again that was unbound: all of it, or what a program leaves free.

        A program that listens on IPv4 leaves IPv6 free, where clients of `localhost` may look for
        it first. Returns whether this process holds the port, or a part of it.
        """
        if port not in self._unbound:
            return True
        for part in (0, socket.AF_INET6, socket.AF_INET):
            with contextlib.suppress(OSError):
                held = _bind(port, True, part)
                self._holds[port][0].close()
                self._holds[port] = held, self._holds[port][1]
                if not part:
                    self._unbound.remove(port)
                return True
        return False

    def release(self, ports: List[int]) -> None:
        self._unbound.difference_update(ports)
        for port in ports:
            for each in self._holds.pop(port, ()):
                each.close()


def _any_ports() -> List[int]:
    """Ports to choose from, from one on that other jobs will hardly choose."""
    start = int.from_bytes(os.urandom(4), "big") % len(_UNASSIGNED)
    return [*_UNASSIGNED[start:], *_UNASSIGNED[:start]]


def _register(port: int) -> Optional[socket.socket]:
    registry = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        registry.bind("\0" + _registered_name(port))
    except OSError:
        registry.close()
        return None
    return registry


def _registered_name(port: int) -> str:
    return "distrun-port-{}-{}".format(os.getuid(), port)


def _foreign_names(ports: List[int]) -> List[Cause]:
    """The ports whose names in the registry another user has taken."""
    if not ports:
        return []
    # Imported here because most jobs find their ports free.
    from distrun.agent.linux import sock_diag

    owners = sock_diag.owners_of_names(_registered_name(0)[:-1].encode("ascii"))
    found: List[Cause] = []
    for port in ports:
        name = _registered_name(port)
        owner = owners.get(name.encode("ascii"), os.geteuid())
        if owner != os.geteuid():
            found.append(Cause(Code.PORT_NAME_TAKEN, port=port, name=name, count=owner))
    return found


def _bind(port: int, is_again: bool = False, part: int = 0) -> socket.socket:
    """The socket that holds a port; on a host without IPv6, on 0.0.0.0.

    If the port is bound again, its connections in TIME_WAIT do not count. With `part`, only IPv4 or
    IPv6 is bound.
    """
    family = part or (socket.AF_INET6 if _has_ipv6() else socket.AF_INET)
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_again)
        if held.family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bool(part))
            held.bind(("::", port))
        else:
            held.bind(("0.0.0.0", port))  # noqa: S104 - a hold accepts no connection
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        held.close()
        raise
    return held


def _has_ipv6() -> bool:
    """Whether `[::]` can be bound: IPv6 may be compiled in but disabled."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
            trial.bind(("::", 0))
    except OSError:
        return False
    return True


def _probe(port: int) -> None:
    """Raise OSError if a program listens on the port.

    A stale server of the same user that shares ports would allow the hold, and then receive some
    of the connections. With SO_REUSEADDR, connections in TIME_WAIT do not count.
    """
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        with probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                raise
