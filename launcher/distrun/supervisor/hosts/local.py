"""The reach of this machine: its agent is a process below the supervisor."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause, Code, Hello
from distrun.agent.protocol.causes import CauseError
from distrun.errors import InternalError
from distrun.job import held_package
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Spec
from distrun.supervisor import forked_process
from distrun.supervisor.forked_process import ForkedProcess, Process, with_socket
from distrun.supervisor.hosts.host_channel import HostChannel
from distrun.supervisor.hosts.reach import (
    FORK_ERRORS,
    Connection,
    HostView,
    Lifetime,
    Login,
    Reach,
    agent_exited,
)
from distrun.sync.manifest import Manifest

SOURCES = str(Path(__file__).resolve().parents[3])
_AGENT = "distrun.agent.main"
_STUB = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"
_WITHOUT_WORKING_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "


def isolated_python(module: str, *args: str) -> list[str]:
    """Return a command that runs `main` of a module of distrun that needs no other package.

    Neither the working folder nor PYTHON* variables affect it.
    """
    return [sys.executable, "-I", "-S", "-c", _STUB.format(module=module), SOURCES, *args]


def python_with_packages(program: str, *args: str) -> list[str]:
    """Return a command that runs a program of text with this interpreter and all its packages.

    Unlike :func:`isolated_python`, it heeds PYTHONPATH and finds packages of the user. Nothing is
    imported from the working folder, where other users may have written a `json.py`.
    """
    # Without -P, Python 3.13 imports `linecache` from there, before any line of the program.
    flags = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *flags, "-c", _WITHOUT_WORKING_FOLDER + program, *args]


_is_supervisor = False
"""Whether the agent of this machine is a fork: this process has one thread."""

_agent: tuple[Process, socket.socket] | None = None
"""An agent that has no job yet, and its socket."""


def fork_agent() -> None:
    """Fork the agent of this machine for the first connection to it. It ends with this process."""
    global _agent  # noqa: PLW0603 - there is one in a process
    with contextlib.suppress(OSError):
        _agent = with_socket(_fork)


def end_unused_agent() -> None:
    """End the agent of :func:`fork_agent` if no connection has used it."""
    global _agent  # noqa: PLW0603 - there is one in a process
    if _agent is not None:
        process, stream = _agent
        _agent = None
        process.kill()
        process.returncode = -signal.SIGKILL  # it is reaped as any child that nobody asks for
        stream.close()


def become_supervisor() -> None:
    """Have the agent of this machine be a fork; each connected command needs descriptors, too."""
    global _is_supervisor  # noqa: PLW0603 - a fact of this process, set once
    _is_supervisor = True
    syscalls.raise_descriptor_limit()


class LocalReach(Reach):
    """This machine. Its agent ends with the link, so a lost link is never reconnected."""

    lifetime = Lifetime.SUPERVISOR

    def open(self, job_id: str, login: Login) -> Connection:  # noqa: ARG002 - always for an agent
        global _agent
        early, _agent = _agent, None
        try:
            if early is not None:
                with contextlib.suppress(OSError):  # somebody has killed it
                    return _give_job(job_id, *early)
            if _is_supervisor:
                return _give_job(job_id, *with_socket(_fork))
            return _connection(*with_socket(partial(_execute, job_id)))
        except OSError as error:
            cause = Cause(Code.AGENT_NOT_STARTED, errno=error.errno or 0)
            raise CauseError(cause) from error

    def describe(self, hello: Hello) -> HostView:
        return HostView(hello, has_files=True, has_python=True)

    def address(self, _: Hello, _hosts: int, own: str | None) -> str | None:
        return own

    def diagnose(self, _: Connection, status: int | None, *, was_up: bool) -> tuple[Cause, bool]:
        if status in FORK_ERRORS and not was_up:
            return Cause(Code.AGENT_NOT_STARTED, errno=status), False
        return agent_exited(status or 0), False


def _execute(job_id: str, stream: int) -> Process:
    return subprocess.Popen(
        isolated_python(_AGENT, "agent", job_id),
        stdin=stream,
        stdout=stream,
        env={**os.environ, "DISTRUN_JOB_ID": job_id},
    )


def _connection(process: Process, stream: socket.socket) -> Connection:
    descriptor = stream.detach()
    return Connection(process, HostChannel(descriptor, descriptor))


def _give_job(job_id: str, process: Process, stream: socket.socket) -> Connection:
    """Give an agent a job: see :func:`_take_job`."""
    try:
        line = f"{job_id} {forked_process.token()}\n"
        socket.send_fds(stream, [os.fsencode(line)], [2])
    except OSError:
        stream.close()
        raise
    return _connection(process, stream)


def _fork(stream: int) -> ForkedProcess:
    """Fork an agent that serves a socket, and waits for a job. It ends with this process."""
    parent = os.getpid()

    def enter() -> None:
        syscalls.die_with_parent(parent, signal.SIGKILL)
        importlib.import_module(_AGENT)
        held_package.hold("agent")

    def run() -> NoReturn:
        _take_job()
        syscalls.restore_descriptor_limit()
        main: Callable[[], NoReturn] = sys.modules[_AGENT].main
        main()

    name, code = "distrun: agent", InternalError.exit_code
    return ForkedProcess(run, enter=enter, name=name, stream=stream, exit_code=code)


def _take_job() -> None:
    """Wait for a job on standard input: the supervisor's standard error; id and token as a line."""
    with socket.socket(fileno=os.dup(0)) as stream:
        line, descriptors, _, _ = socket.recv_fds(stream, 1, 1)
    for each in descriptors:
        os.dup2(each, 2)
        os.close(each)
    while line and not line.endswith(b"\n"):
        read = os.read(0, 1)
        line = line + read if read else b""
    if not line:
        os._exit(0)
    job_id, _, token = os.fsdecode(line[:-1]).rpartition(" ")
    forked_process.set_token(token)
    forked_process.rename(f"distrun: agent of {job_id}", job_id)
    syscalls.live_without_parent()


def make_reach(_host: HostSpec, _spec: Spec, _files: Manifest | None, _found_as: str) -> Reach:
    return LocalReach()
