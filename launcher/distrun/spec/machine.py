"""Which names and addresses mean this machine, found without asking the network."""

from __future__ import annotations

from functools import lru_cache

_LOOPBACK = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "::1"})


def is_this_machine(host: str) -> bool:
    """Whether `host` is this machine. Names are looked up in /etc/hosts alone, never in DNS."""
    host = host.lower().rstrip(".")
    if host in _LOOPBACK or _is_loopback(host):
        return True
    import socket

    name = socket.gethostname().lower()
    if host in (name, name.partition(".")[0]):
        return True
    return host in _own_addresses() or host in _own_names()


def is_loopback(host: str) -> bool:
    """Whether `host` means, on every machine, that machine itself. Nothing is looked up."""
    host = host.lower().rstrip(".")
    if ":" in host:
        import ipaddress  # for few hosts

        try:
            found = ipaddress.IPv6Address(host)
        except ValueError:
            return False
        if found.ipv4_mapped is None:
            return found.is_loopback or found.is_unspecified
        host = str(found.ipv4_mapped)
    named = host in _LOOPBACK or host.endswith(".localhost")
    return named or host == "0.0.0.0" or _is_loopback(host)  # noqa: S104 - nothing is bound


def _is_loopback(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)


@lru_cache(maxsize=1)
def _own_addresses() -> frozenset[str]:
    import socket

    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return frozenset(
        address.address.partition("%")[0].lower()
        for interface in psutil.net_if_addrs().values()
        for address in interface
        if address.family in families
    )


@lru_cache(maxsize=1)
def _own_names() -> frozenset[str]:
    names: set[str] = set()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 20).splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        address, *aliases = line.partition("#")[0].lower().split() or [""]
        if _is_loopback(address) or address in _own_addresses():
            names.update(aliases)
    return frozenset(names)
