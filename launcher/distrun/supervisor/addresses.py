"""By which address the other hosts reach each host, where the spec does not say."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distrun.agent.wire import Hello

_ANY_PORT = 9  # nothing is ever sent to it


def addresses(hellos: Mapping[str, Hello], remote: set[str]) -> dict[str, str | None]:
    """What to dial for each host; None: its name.

    A host that ssh was used for is dialled where ssh came to, which behind a jump host is still
    its own address. This machine is dialled where those hosts see it, if it has that address, or
    else at the end of its way to them. A job on one machine stays on localhost.

    Args:
        hellos: what the hosts said, by name.
        remote: the names of those that are reached by ssh.
    """
    others = [hellos[name] for name in hellos if name in remote]
    here = None
    if len(hellos) > 1:
        here = _own_address([hello for hello in others if not _is_loopback(hello.address)])
    found: dict[str, str | None] = {}
    for name, hello in hellos.items():
        if name not in remote:
            found[name] = here
        elif len(hellos) > 1 and _is_loopback(hello.address):
            found[name] = here or hello.hostname  # another name of this machine
        else:
            found[name] = hello.address or None
    return found


def _own_address(others: list[Hello]) -> str | None:
    """This machine's address as others reach it."""
    for hello in others:
        if hello.seen_from and _is_own(hello.seen_from):
            return hello.seen_from
    for hello in others:
        way = _way_to(hello.address)
        if way is not None:
            return way
    return None


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_own(address: str) -> bool:
    """Whether this machine has that address: only then can it be bound."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return not _is_loopback(address)


def _way_to(address: str) -> str | None:
    """The address that this machine would write to that one from."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as trial:
            trial.connect((address, _ANY_PORT))
            name: str = trial.getsockname()[0]
    except OSError:
        return None
    return None if _is_loopback(name) else name
