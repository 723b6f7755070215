"""The addresses by which hosts reach each other, if the spec gives none."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from distrun.spec.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distrun.agent.protocol import Hello

_ANY_PORT = 9  # nothing is ever sent to it
_FAR_AWAY = ("192.0.2.1", "2001:db8::1")
"""Reserved addresses (RFC 5737, RFC 3849), which have no host: the default route leads to them."""


def login_address(hello: Hello, hellos: Collection[Hello]) -> str | None:
    """Return the address of a host that a login came to; None: its name in the spec.

    It is the address that the login connected to. Behind a jump host, too, that is the host's own.
    A login through a tunnel or a pipe shows no address; then it is the host's own name.
    """
    if len(hellos) == 1:
        return hello.address or "localhost"
    if _is_reachable(hello):
        return hello.address
    if is_loopback(hello.address) and hello.hostname == socket.gethostname():
        return own_address(hellos)  # another name of this machine
    return _unless_loopback(hello.hostname)


def _source_address(address: str) -> str | None:
    """Return this machine's address on the route to that one."""
    try:
        with socket.socket(_address_family(address), socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            name: str = probe.getsockname()[0]
    except OSError:
        return None
    return _unless_loopback(name)


def own_address(
    hellos: Collection[Hello],
    *,
    source_address: Callable[[str], str | None] = _source_address,
    hostname: Callable[[], str] = socket.gethostname,
) -> str | None:
    """Return this machine's address as other hosts reach it; None if there is none.

    It is the address from which a host saw the login, if this machine has it. Otherwise it is this
    machine's address on the route to that host, or else on the default route.
    """
    others = [hello for hello in hellos if _is_reachable(hello)]
    for hello in others:
        if hello.seen_from and _is_own(hello.seen_from):
            return hello.seen_from
    for address in (*(hello.address for hello in others), *_FAR_AWAY):
        source = source_address(address)
        if source is not None:
            return source
    return _unless_loopback(hostname())


def _is_reachable(hello: Hello) -> bool:
    """Whether the login connected to an address by which other hosts may reach it, too."""
    return bool(hello.address) and not is_loopback(hello.address)


def _unless_loopback(name: str) -> str | None:
    return name if name and not is_loopback(name) else None


def _address_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_own(address: str) -> bool:
    """Whether this machine has that address: otherwise it cannot be bound."""
    try:
        with socket.socket(_address_family(address), socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return not is_loopback(address)
