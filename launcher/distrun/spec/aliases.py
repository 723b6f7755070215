"""Hosts that go by a name of ~/.ssh/config: which addresses are theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distrun.spec.hostnames import bare

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.spec.model import HostSpec, SshSpec

_SECONDS = 10.0


def with_addresses_of_aliases(
    hosts: tuple[HostSpec, ...], wanted: Iterable[str], ssh: SshSpec
) -> tuple[HostSpec, ...]:
    """The hosts, with the address of each whose name ssh resolves to one that is `wanted`.

    ssh is asked only where no host has such an address by itself.
    """
    known = {bare(host.name) for host in hosts} | {(host.address or "").lower() for host in hosts}
    unknown = set(wanted) - known
    found = []
    for host in hosts:
        may_be_meant = unknown and not host.is_local and host.address is None
        address = _resolved(host.name, ssh) if may_be_meant else None
        is_meant = address in unknown
        unknown.discard(address or "")
        found.append(replace(host, address=address) if is_meant else host)
    return tuple(found)


def _resolved(name: str, settings: SshSpec) -> str | None:
    """The machine that ssh would dial for a name, without dialling it."""
    import subprocess  # few specs come to this

    config = [] if settings.config_file is None else ["-F", settings.config_file]
    try:
        done = subprocess.run(
            ["ssh", "-G", *config, name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return next((value.lower() for key, _, value in lines if key == "hostname"), None)
