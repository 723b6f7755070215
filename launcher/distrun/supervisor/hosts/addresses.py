"""The addresses by which hosts reach each other, if the spec gives none."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from distrun.agent.protocol import Hello
from distrun.spec.addresses import is_loopback
from distrun.spec.host_spec import host_address_problem

_ANY_PORT = 9  # nothing is ever sent to it
_FAR_AWAY = ("192.0.2.1", "2001:db8::1")
"""Reserved addresses (RFC 5737, RFC 3849), which have no host: the default route leads to them."""


def login_address(hello: Hello, hosts: int, own: str | None) -> str | None:
    """Return the address of a host that a login came to; None: its name in the spec.

    It is the address that the login connected to. Behind a jump host, too, that is the host's own.
    A login through a tunnel or a pipe shows no address; then it is the host's own name.
    `hosts`: the number of all hosts. `own`: this machine's address.
    """
    if hosts == 1:
        return "localhost" if _is_link_local(hello.address) else hello.address or "localhost"
    if _is_reachable(hello):
        return hello.address
    if is_loopback(hello.address) and hello.hostname == socket.gethostname():
        return own  # another name of this machine
    # Addresses reach the command lines of all tasks, which may be a shell's.
    return None if host_address_problem(hello.hostname) else _unless_loopback(hello.hostname)


def _source_address(address: str) -> str | None:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            name: str = probe.getsockname()[0]
    except OSError:
        return None
    return _unless_loopback(name)


def own_address(hellos: Collection[Hello]) -> str | None:
    """Return this machine's address as other hosts reach it; None if there is none.

    It is the address from which a host saw the login, if this machine has it. Otherwise it is this
    machine's address on the route to that host, or else on the default route.
    """
    others = [hello for hello in hellos if _is_reachable(hello)]
    for hello in others:
        if hello.seen_from and _is_own(hello.seen_from):
            return hello.seen_from
    for address in (*(hello.address for hello in others), *_FAR_AWAY):
        source = _source_address(address)
        if source is not None:
            return source
    return _unless_loopback(socket.gethostname())


def _is_reachable(hello: Hello) -> bool:
    """Whether the login connected to an address by which other hosts may reach it, too."""
    address = hello.address
    return bool(address) and not is_loopback(address) and not _is_link_local(address)


def _is_link_local(address: str) -> bool:
    """Whether an address leads to different machines on different links of a host."""
    return bool(address) and parse_ip(address).is_link_local


def parse_ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an IP address without its scope; IPv4 within IPv6 becomes IPv4. Raises ValueError."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _unless_loopback(name: str) -> str | None:
    return name if name and not is_loopback(name) else None


def _is_own(address: str) -> bool:
    """Whether this machine has that address: then what it sends there comes from there.

    Binding would show nothing: every machine can bind multicast and broadcast addresses.
    """
    source = _source_address(address)
    if source is None or _is_link_local(address):
        return False
    return parse_ip(source) == parse_ip(address)
