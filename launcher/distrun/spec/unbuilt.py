"""What a spec can say and distrun cannot do yet; each rule goes when its feature comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.spec.shapes import Section

if TYPE_CHECKING:
    from distrun.spec.model import HostSpec
    from distrun.spec.problems import Problems


def refuse_unbuilt(
    document: Section, hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    """Add a problem for everything in the spec that would have no effect yet."""
    _refuse_hosts(document, hosts, problems)
    _refuse(document, "restart", "max", 0, "restarts do not work yet", problems)
    _refuse(document, "timeouts", "stall", None, "stalls are not detected yet", problems)
    _refuse(document, "logs", "max_size", None, "logs are not bounded yet", problems)


def _refuse_hosts(
    document: Section, hosts: tuple[HostSpec, ...] | None, problems: Problems
) -> None:
    remote = next((host.name for host in hosts or () if not host.is_local), None)
    if remote is not None:
        key = "hosts" if document.has("hosts") else "hostfile"
        problems.add(document.marks[key], f"tasks cannot run on {remote} yet, only on this machine",
                     f"remove {key}")
    if document.has("ssh"):
        problems.add(document.keys["ssh"], "ssh is not used yet: tasks run only on this machine",
                     "remove it")


def _refuse(
    document: Section, section: str, key: str, off: object, what: str, problems: Problems
) -> None:
    """Refuse `section.key` where it is anything but `off`."""
    found = document.get(section)
    if isinstance(found, Section) and found.get(key, off) != off:
        problems.add(found.keys[key], f"{section}.{key}: {what}", "remove it")
