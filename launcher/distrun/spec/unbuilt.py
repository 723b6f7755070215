"""What a spec can say and distrun cannot do yet; each rule goes when its feature comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.spec.problems import quoted
from distrun.spec.records import Section

if TYPE_CHECKING:
    from distrun.spec.model import HostSpec
    from distrun.spec.problems import Problems


_UNBUILT = (
    ("timeouts", "stall", None, "stalls are not detected yet"),
    ("logs", "max_size", None, "logs are not bounded yet"),
)
"""Section, key, the value that asks for nothing, and what to say of any other."""


def refuse_unbuilt(
    document: Section, hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    """Add a problem for everything in the spec that would have no effect yet."""
    _refuse_hosts(document, hosts, problems)
    for name, key, nothing, what in _UNBUILT:
        section = document.get(name)
        if isinstance(section, Section) and section.get(key, nothing) != nothing:
            problems.add(section.keys[key], f"{name}.{key}: {what}", "remove it")


def _refuse_hosts(
    document: Section, hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    remote = next((host.name for host in hosts or () if not host.is_local), None)
    if remote is not None:
        key = "hosts" if document.has("hosts") else "hostfile"
        problems.add(
            document.marks[key],
            f"tasks cannot run on {quoted(remote)} yet, only on this machine",
            f"remove {key}",
        )
    if document.has("ssh"):
        problems.add(
            document.keys["ssh"], "ssh is not used yet: tasks run only on this machine", "remove it"
        )
