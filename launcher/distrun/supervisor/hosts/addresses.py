"""By which address the other hosts reach each host, where the spec does not say."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from distrun.spec.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distrun.agent.protocol import Hello

_ANY_PORT = 9  # nothing is ever sent to it
_FAR_AWAY = ("192.0.2.1", "2001:db8::1")
"""Addresses that are nobody's (RFC 5737, RFC 3849): the way to them is the default route."""


def addresses(hellos: Mapping[str, Hello], remote: set[str]) -> dict[str, str | None]:
    """What to dial for each host; None: its name.

    A host that ssh was used for is dialled where ssh came to, which behind a jump host is still
    its own address; where that tells nothing, as at a tunnel's end or behind a pipe, by what the
    host calls itself. This machine is dialled where those hosts see it, if it has that address, or
    else at the end of its way to them, or to the world. A job on one machine stays on localhost.

    Args:
        hellos: what the hosts said, by name.
        remote: the names of those that are reached by ssh.
    """
    if len(hellos) == 1:
        return {
            name: hello.address or "localhost" if name in remote else None
            for name, hello in hellos.items()
        }
    others = [hellos[name] for name in hellos if name in remote]
    here = _own_address([hello for hello in others if _is_told(hello)])
    found: dict[str, str | None] = {}
    for name, hello in hellos.items():
        if name not in remote:
            found[name] = here
        elif _is_told(hello):
            found[name] = hello.address
        elif is_loopback(hello.address) and hello.hostname == socket.gethostname():
            found[name] = here  # another name of this machine
        else:
            found[name] = _unless_loopback(hello.hostname)
    return found


def _is_told(hello: Hello) -> bool:
    """Whether ssh came to an address by which others may, too."""
    return bool(hello.address) and not is_loopback(hello.address)


def _own_address(others: list[Hello]) -> str | None:
    """This machine's address as others reach it."""
    for hello in others:
        if hello.seen_from and _is_own(hello.seen_from):
            return hello.seen_from
    for address in (*(hello.address for hello in others), *_FAR_AWAY):
        way = _way_to(address)
        if way is not None:
            return way
    return _unless_loopback(socket.gethostname())


def _unless_loopback(name: str) -> str | None:
    return name if name and not is_loopback(name) else None


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_own(address: str) -> bool:
    """Whether this machine has that address: only then can it be bound."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return not is_loopback(address)


def _way_to(address: str) -> str | None:
    """The address that this machine would write to that one from."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as trial:
            trial.connect((address, _ANY_PORT))
            name: str = trial.getsockname()[0]
    except OSError:
        return None
    return _unless_loopback(name)
