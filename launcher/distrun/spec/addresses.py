"""Addresses: `host:port` as TF_CONFIG's cluster takes it, and loopback names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from ipaddress import IPv6Address

_IPV6 = r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.\-]+)?\]"
ADDRESS_PATTERN = rf"({_IPV6}|[A-Za-z0-9_][A-Za-z0-9_.\-]*):[0-9]{{1,5}}"
LAST_PORT = 65535
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "::1"})


class Address(Frozen):
    """A task's address. `host` has no brackets and is in its shortest spelling."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    # One address has many spellings; TF_CONFIG gets the user's own.
    host = str(ipv6(host[1:-1])) if host.startswith("[") else host.lower()
    return Address(host, int(port))


def address_problem(text: str) -> str | None:
    shown = ascii(text[:60])
    if not re.fullmatch(ADDRESS_PATTERN, text):
        return f"must be host:port, such as localhost:12345 or [::1]:12345, not {shown}"
    host, _, port = text.rpartition(":")
    if not 1 <= int(port) <= LAST_PORT:
        return f"has the port {int(port)}; ports are 1 to {LAST_PORT}"
    if host.startswith("[") and ipv6(host[1:-1]) is None:
        return f"must be host:port, and {shown} holds no IPv6 address"
    return None


def ipv6(text: str) -> IPv6Address | None:
    """Parse an IPv6 address without brackets; None: it is none."""
    import ipaddress  # few hosts need it

    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether `host` means, on every machine, that machine itself. Nothing is resolved."""
    host = host.lower().rstrip(".")
    found = ipv6(host) if ":" in host else None
    if found is not None and found.ipv4_mapped is None:
        return found.is_loopback or found.is_unspecified
    host = host if found is None else str(found.ipv4_mapped)
    named = host in LOOPBACK_NAMES or host.endswith(".localhost")
    return named or host == "0.0.0.0" or is_loopback_ipv4(host)  # noqa: S104 - nothing is bound


def is_loopback_ipv4(host: str) -> bool:
    """Whether `host` is an address in 127.0.0.0/8."""
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)
