"""The reach of this machine: its agent is a process below the supervisor."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.supervisor.hosts.host_channel import HostChannel
from distrun.supervisor.hosts.reach import FORK_ERRORS, Connection, Reach, agent_exited

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distrun.agent.protocol import Hello
    from distrun.spec.model import HostSpec, Spec

SOURCES = str(Path(__file__).resolve().parents[3])
"""The folder of the package."""
_STUB = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"
_WITHOUT_WORKING_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "


def isolated_python(
    module: str, *args: str, python: str = sys.executable, stub: str = _STUB
) -> list[str]:
    """Return a command that runs `main` of a module of distrun that needs no other package.

    It starts in 10 ms, and neither the working folder nor PYTHON* variables affect it.
    """
    return [python, "-I", "-S", "-c", stub.format(module=module), SOURCES, *args]


def python_with_packages(program: str, *args: str) -> list[str]:
    """Return a command that runs a program of text with this interpreter and all its packages.

    Unlike :func:`isolated_python`, it heeds PYTHONPATH and finds packages of the user. Nothing is
    imported from the working folder, where other users may have written a `json.py`.
    """
    # Without -P, Python 3.13 imports `linecache` from there, before any line of the program.
    flags = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *flags, "-c", _WITHOUT_WORKING_FOLDER + program, *args]


_inherited_limit: tuple[int, int] | None = None
"""The limit on descriptors that this process inherited, which an agent below it gets back."""


def raise_descriptor_limit() -> None:
    """Raise this process's limit on descriptors: each connected command and host needs some."""
    global _inherited_limit  # noqa: PLW0603 - a fact of this process, set once
    _inherited_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = _inherited_limit[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _restore_descriptor_limit() -> None:
    if _inherited_limit is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _inherited_limit)


class LocalReach(Reach):
    """This machine. Its agent ends with the link, so a lost link is never reconnected.

    Args:
        command: returns the command that runs `main` of a module with arguments. Default:
            :func:`isolated_python`.
    """

    kind = "local"
    has_own_logs = False
    lacks_files = False
    inherits_environment = True
    needs_preflight = False
    is_below_supervisor = True
    default_python = sys.executable
    folder_variable = "DISTRUN_HOME"

    def __init__(self, command: Callable[..., list[str]] | None = None) -> None:
        self._command = command or isolated_python

    def connect(self, job_id: str) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    self._command("distrun.agent.main", "agent", job_id),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    env={**os.environ, "DISTRUN_JOB_ID": job_id},
                    preexec_fn=_restore_descriptor_limit,  # noqa: PLW1509 - there is one thread
                )
            except OSError:
                ours.close()
                raise
        descriptor = ours.detach()
        return Connection(process, HostChannel(descriptor, descriptor))

    def address(self, hello: Hello, hellos: Collection[Hello]) -> str | None:  # noqa: ARG002
        from distrun.supervisor.hosts.addresses import own_address

        # A job on one machine stays on localhost.
        return None if len(hellos) == 1 else own_address(hellos)

    def diagnose(self, connection: Connection, status: int | None) -> Cause:  # noqa: ARG002
        if status in FORK_ERRORS:
            return Cause(Code.AGENT_NOT_STARTED, errno=status)
        return agent_exited(status or 0)


def make_reach(_host: HostSpec, _spec: Spec) -> Reach:
    """Return the reach of a host of the spec."""
    return LocalReach()
