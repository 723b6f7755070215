"""`host:port`, as TF_CONFIG's cluster takes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

ADDRESS_PATTERN = r"(\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.\-]+)?\]|[A-Za-z0-9_][A-Za-z0-9_.\-]*):[0-9]{1,5}"

_ADDRESS = re.compile(ADDRESS_PATTERN)
LAST_PORT = 65535


@dataclass(frozen=True)
class Address:
    """A task's address, taken apart; `host` is without brackets and in lower case."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Take `text` apart; it has passed :func:`address_problem`."""
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]").lower(), int(port))


def address_problem(text: str) -> str | None:
    """What is wrong with an address, or None."""
    shown = ascii(text[:60])
    if not _ADDRESS.fullmatch(text):
        return f"must be host:port, such as localhost:12345 or [::1]:12345, not {shown}"
    port = int(text.rpartition(":")[2])
    if not 1 <= port <= LAST_PORT:
        return f"has the port {port}; ports are 1 to {LAST_PORT}"
    if text.startswith("[") and not _is_ipv6(parse_address(text).host):
        return f"must be host:port, and {shown} holds no IPv6 address"
    return None


def _is_ipv6(text: str) -> bool:
    import ipaddress  # costs 3 ms, and hardly a spec needs it

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
