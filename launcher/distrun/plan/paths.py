"""Maps paths of the launching machine to those on a host with a copy of the program's files."""

from __future__ import annotations

from distrun.plan.facts import HostFacts
from distrun.plan.placement import Placed
from distrun.spec.model import ProgramSpec, Sync


def relocated(path: str, program: ProgramSpec, facts: HostFacts) -> str | None:
    """The path in the host's copy for a path of the launching machine; None if it is not sent."""
    if facts.files is None:
        return None
    base = program.sync_base.rstrip("/")
    if path.rstrip("/") == base:
        return facts.files
    return facts.files + path[len(base) :] if path.startswith(base + "/") else None


def on_host(path: str, facts: HostFacts) -> str:
    """A path that the spec has for a host, with the home folder of the login there for `~`."""
    home = facts.environ.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def workdir(program: ProgramSpec, placed: Placed, facts: HostFacts) -> str:
    """The folder in which a task runs.

    If the spec names one for the host, it is that. Otherwise it is the same folder as on this
    machine, or its copy if it was sent. If the spec names no folder, the host need not have that of
    this machine, so the top of the copy is used instead.
    """
    if placed.host.workdir is not None:
        return on_host(placed.host.workdir, facts)
    inside = relocated(program.workdir, program, facts)
    if inside is not None:
        return inside
    if facts.files is None or program.is_workdir_chosen:
        return program.workdir
    return facts.files


def may_be_home(program: ProgramSpec, placed: Placed, facts: HostFacts) -> bool:
    """Whether a task may run in its host's home folder if `workdir` does not exist there.

    This holds for a command that names no file: its folder is only where launch was called.
    """
    is_chosen = program.is_workdir_chosen or placed.host.workdir is not None
    needs_nothing = program.sync is Sync.SCRIPT and not program.sync_base
    return needs_nothing and not is_chosen and not facts.has_launch_folders
