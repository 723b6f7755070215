"""Paths of the launching machine, as they are on a host that has a copy of the program's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.spec.model import Sync

if TYPE_CHECKING:
    from distrun.plan.facts import HostFacts
    from distrun.plan.placement import Placed
    from distrun.spec.model import ProgramSpec


def relocated(path: str, program: ProgramSpec, facts: HostFacts) -> str | None:
    """Where a path of the launching machine is in the host's copy; None where it is not in it."""
    if facts.files is None:
        return None
    base = program.sync_base.rstrip("/")
    if path.rstrip("/") == base:
        return facts.files
    return facts.files + path[len(base) :] if path.startswith(base + "/") else None


def script(program: ProgramSpec, facts: HostFacts) -> str:
    """The script to run on a host."""
    return relocated(program.target, program, facts) or program.target


def workdir(program: ProgramSpec, placed: Placed, facts: HostFacts) -> str:
    """In which folder a task runs.

    The host's own, where the spec names one for it. Else the same as here, in the copy where that
    is in it; a folder that the spec does not name, and that the host need not have, gives way to
    the copy's top.
    """
    if placed.host.workdir is not None:
        return placed.host.workdir
    inside = relocated(program.workdir, program, facts)
    if inside is not None:
        return inside
    if facts.files is None or program.is_workdir_chosen:
        return program.workdir
    return facts.files


def may_be_home(program: ProgramSpec, placed: Placed, facts: HostFacts) -> bool:
    """Whether a task may run in its host's home folder where that has no such `workdir`.

    So it is with a command that names no file: where it runs is by chance where launch was called.
    """
    is_chosen = program.is_workdir_chosen or placed.host.workdir is not None
    needs_nothing = program.sync is Sync.SCRIPT and not program.sync_base
    return needs_nothing and not is_chosen and not facts.has_launch_folders
