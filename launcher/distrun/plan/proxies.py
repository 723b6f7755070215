"""Whether a task's environment sends its gRPC calls to an HTTP proxy instead of its peers.

The rules are those of gRPC's C core (http_proxy_mapper.cc), measured with TensorFlow 2.21. Only
names in lower case count.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
PROXY_VARIABLES = (*_PROXIES, *_EXCEPTIONS)
"""The variables that gRPC reads."""


class ProxyUse(Frozen):
    """The variable that names the proxy, and the machines that gRPC would call through it.

    The variable's value may hold a password, so it is not kept.
    """

    variable: str
    machines: tuple[str, ...]


def proxy_use(environ: Mapping[str, str], machines: Sequence[str]) -> ProxyUse | None:
    """How gRPC would use a proxy to reach `machines`; None if it would use none for any machine.

    The first proxy variable that is set counts, even if it is empty: then there is no proxy. The
    same holds for the exceptions. A proxy that does not begin with `http://` is not used.
    """
    variable = next((name for name in _PROXIES if name in environ), None)
    if variable is None or not environ[variable].startswith("http://"):
        return None
    exceptions = next((environ[name] for name in _EXCEPTIONS if name in environ), "")
    return ProxyUse(variable, _not_excepted(exceptions, tuple(machines)))


@functools.cache  # nearly all tasks of a job have the same
def _not_excepted(exceptions: str, machines: tuple[str, ...]) -> tuple[str, ...]:
    entries = [each.strip().lower() for each in exceptions.split(",") if each]
    networks = [network for each in entries if (network := _network(each)) is not None]
    return tuple(
        machine
        for machine in machines
        # A blank entry matches every name; `*` matches none.
        if not machine.lower().endswith(tuple(entries)) and not _is_in(machine, networks)
    )


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    """The network of an entry such as 10.0.0.0/8."""
    if not entry.partition("/")[2].isdecimal():
        return None
    import ipaddress  # few specs need it

    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_in(machine: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    if not networks:
        return False
    import ipaddress

    try:
        address = ipaddress.ip_address(machine)
    except ValueError:
        return False
    return any(address in network for network in networks)
