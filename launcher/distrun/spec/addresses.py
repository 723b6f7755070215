"""`host:port`, as TF_CONFIG's cluster takes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv6Address

_IPV6 = r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.\-]+)?\]"
ADDRESS_PATTERN = rf"({_IPV6}|[A-Za-z0-9_][A-Za-z0-9_.\-]*):[0-9]{{1,5}}"

_ADDRESS = re.compile(ADDRESS_PATTERN)
LAST_PORT = 65535


@dataclass(frozen=True)
class Address:
    """A task's address, taken apart; `host` is without brackets and in its shortest spelling."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Take `text` apart; it has passed :func:`address_problem`."""
    host, _, port = text.rpartition(":")
    if host.startswith("["):
        # One address has many spellings; TF_CONFIG gets the user's own.
        return Address(str(_ipv6(host[1:-1])), int(port))
    return Address(host.lower(), int(port))


def address_problem(text: str) -> str | None:
    """What is wrong with an address, or None."""
    shown = ascii(text[:60])
    if not _ADDRESS.fullmatch(text):
        return f"must be host:port, such as localhost:12345 or [::1]:12345, not {shown}"
    port = int(text.rpartition(":")[2])
    if not 1 <= port <= LAST_PORT:
        return f"has the port {port}; ports are 1 to {LAST_PORT}"
    try:
        parse_address(text)
    except ValueError:
        return f"must be host:port, and {shown} holds no IPv6 address"
    return None


def _ipv6(text: str) -> IPv6Address:
    import ipaddress

    return ipaddress.IPv6Address(text)
