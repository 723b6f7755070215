"""The supervisor's process: a fork of the launch command.

The command forks it as soon as it has imported what both need. While one process reads the spec,
the other imports what only a supervisor needs, and forks the agent of this machine in the same way.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from distrun.supervisor.forked_process import ForkedProcess, Process, with_socket

_HARMLESS = {
    "PYTHON",  # of other tools: the interpreter that they use
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONNOUSERSITE"),
    *("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED"),
}
"""Variables with no effect on what is imported; what PYTHONPATH has done is looked at."""
_MODULE = "distrun.supervisor.main"
_COMMON = "distrun.job.session"
"""It imports most of what the launch command and the supervisor both need: once for both."""
_NAME = "distrun: supervisor"
_LIBRARY = os.path.dirname(os.__file__)
_SOURCES = str(Path(__file__).resolve().parents[2])
_DEFECT = 70

_early: tuple[ForkedProcess, socket.socket] | None = None
"""A supervisor that has no job yet, and the socket that it serves."""


def start_early() -> None:
    """Fork a supervisor for the first :func:`start`, if possible. It ends with this process."""
    global _early  # noqa: PLW0603 - there is one in a process
    importlib.import_module(_COMMON)
    if not _is_plain():
        return
    with contextlib.suppress(OSError):
        _early = with_socket(
            lambda served: ForkedProcess(
                _run,
                enter=partial(_enter, served, os.getpid()),
                name=_NAME,
                kept=(served,),
                exit_code=_DEFECT,
            )
        )


def start(job_id: str) -> tuple[Process, int]:
    """Start a supervisor in a session of its own; return it, and its socket. Raises OSError."""
    global _early
    early, _early = _early, None
    if early is not None and early[0].poll() is None:
        return early[0], early[1].detach()
    from distrun.supervisor.hosts.local import isolated_python

    process, ours = with_socket(
        lambda served: subprocess.Popen(
            isolated_python(_MODULE, job_id, str(served)),
            stdin=subprocess.DEVNULL,
            stdout=2,  # until it has a log
            stderr=2,
            pass_fds=[served],
            start_new_session=True,
            env={**os.environ, "DISTRUN_JOB_ID": job_id},
        )
    )
    return process, ours.detach()


def _is_plain() -> bool:
    """Whether this process may be forked, and its modules are those that `python -I` imports."""
    settings = {name for name in os.environ if name.startswith("PYTHON")} - _HARMLESS
    if any(not name.startswith("PYTHON_") for name in settings):  # images set PYTHON_VERSION
        return False
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:  # there is no /proc: the supervisor says so
        return False
    if sys.warnoptions or threads > threading.active_count():
        return False
    library = {*sys.stdlib_module_names, "sitecustomize", "usercustomize"}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in library)
    return all(_is_standard(os.path.dirname(file)) for file in files if file is not None)


def _is_standard(folder: str) -> bool:
    """Whether a folder has modules of Python's own library."""
    inside = f"{folder}/".startswith(f"{_LIBRARY}/") or os.path.basename(folder) == "lib-dynload"
    return inside and "-packages" not in folder


def _enter(descriptor: int, parent: int) -> None:
    from distrun.agent.linux import syscalls
    from distrun.supervisor.hosts import local

    os.setsid()
    sys.argv = ["-c", "", str(descriptor)]
    sys.path[:] = [_SOURCES, *filter(_is_standard, sys.path)]
    syscalls.die_with_parent(parent, signal.SIGKILL)
    local.fork_agent()
    importlib.import_module(_MODULE)


def _run() -> NoReturn:
    main: Callable[[], NoReturn] = sys.modules[_MODULE].main
    main()
