"""The interface of the ways to reach a host.

A new way is one module of this package, with a class derived from :class:`Reach` and a function
`make_reach`, and one section of the spec that selects it (:attr:`HostSpec.reach` has the module's
name). No other code asks how a host is reached: it reads the attributes of its reach.
"""

# ruff: noqa: ARG002 - all reaches have the same parameters

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from distrun.agent.linux import job_processes
from distrun.agent.protocol import Cause, Code, Hello
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Spec
from distrun.supervisor.forked_process import Process
from distrun.supervisor.hosts import bootstrap
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver, HostChannel
from distrun.sync.manifest import Manifest

FORK_ERRORS = (errno.EAGAIN, errno.ENOMEM)
"""An agent that cannot fork exits with such a number."""
_STDERR_BYTES = 8000
_ALIVE = re.compile(f"{job_processes.TASKS_ALIVE} ([0-9 ]{{1,200}})")
_STDERR_BLOCKS = 16
"""How many blocks to read at once: more than a pipe holds."""


@dataclass
class Connection:
    """A connection to an agent: a process on this machine, and descriptors that lead through it."""

    process: Process
    channel: HostChannel
    stderr: int | None = None
    """A non-blocking descriptor with the process's standard error; None: it shares this one's."""
    log_window: int = 0
    """How many bytes of logs may be in flight: never more than fit into the link's buffers."""
    follows_logs: bool = False
    """Whether the agent was ordered to send its logs through it."""
    has_own_session: bool = False
    """Whether the process leads a session, and so a process group."""
    mark: bytes = b""
    """The bytes that the agent writes first, to separate its messages from a login's output."""
    agent: Callable[[], bytes] = bytes
    """Returns the bytes that start the agent at the other end; none if it is started already. To
    make them may take long."""
    copy_key: str = ""
    """The host's in :mod:`.sent_agents`, once :attr:`agent` was called; empty: it keeps no copy."""
    agent_size: int = 0
    """How many bytes of the agent were sent through it; 0: it is no pipe, or leads to an agent."""
    _printed: bytes = b""

    def read_stderr(self) -> bool:
        """Read what standard error has now. Returns False at its end."""
        if self.stderr is None:
            return False
        for _ in range(_STDERR_BLOCKS):
            try:
                block = os.read(self.stderr, 65536)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not block:
                return False
            self._printed = (self._printed + block)[-_STDERR_BYTES:]
        return True

    def discard_stderr(self) -> None:
        """Drop what was printed so far: banners and profiles do not explain how a link ends."""
        self.read_stderr()
        self._printed = b""

    @property
    def stderr_text(self) -> str:
        return self._printed.decode("utf-8", "replace").strip()

    @property
    def has_read_agent(self) -> bool:
        """Whether the process may have read all of the agent; if not, none has been started."""
        if not self.agent_size:
            return True
        import termios

        unread = fcntl.ioctl(self.channel.writer, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(unread, sys.byteorder) < self.agent_size

    def agent_is_gone(self, status: int | None) -> bool:
        """Whether it found that the agent that it was to lead to, and its tasks, are gone.

        `status`: how the process exited; None: it runs, as with background jobs of a login profile.
        """
        return job_processes.NO_AGENT in self.stderr_text or status == job_processes.EXIT_NO_AGENT

    def tasks_alive(self, status: int, host: str) -> Cause | None:
        """Return the cause if it exited because processes of the job do not end on its host."""
        found = (
            _ALIVE.search(self.stderr_text) if status == job_processes.EXIT_TASKS_ALIVE else None
        )
        return found and Cause(Code.FORMER_TASKS_ALIVE, host=host, text=found[1])

    def begin(self, login: Login, agent: Callable[[], bytes] = bytes) -> None:
        """Note what starts the agent, or send the program that a login runs instead of one."""
        if login.purpose is Purpose.AGENT:
            self.agent = agent
            return
        program = bootstrap.run(login.purpose.value, self.mark, *login.arguments)
        self.channel.send_bytes(program)

    @property
    def noise(self) -> bytes:
        return self.channel.noise if isinstance(self.channel, ChecksummedReceiver) else b""

    def answer(self, name: bytes) -> dict[str, Any]:
        """Return the JSON object after `name`, on a line that the host has printed before."""
        _, found, rest = self.noise.rpartition(name)
        with contextlib.suppress(ValueError):
            answer = json.loads(rest.partition(b"\n")[0]) if found else {}
            return answer if isinstance(answer, dict) else {}
        return {}

    def close(self) -> None:
        """Kill the process and what it started in its session, and close the descriptors.

        It is not waited for. Who handles SIGCHLD reaps it, as any child that nobody asks for.
        """
        if self.process.poll() is None:
            if self.has_own_session:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
            self.process.returncode = -signal.SIGKILL
        self.channel.close()
        if self.stderr is not None:
            os.close(self.stderr)


class Purpose(Enum):
    """What a login is for: the module whose `main` it runs."""

    AGENT = "distrun.agent.main"
    """Start the job's agent, by :attr:`Connection.agent`."""
    REATTACH = "distrun.agent.reattach"
    """Take up the link to a running agent."""
    FORMER = "distrun.agent.former"
    """End what an agent has left."""
    FILES = "distrun.agent.written_files"
    """List and send what tasks have written."""


class Attempt(NamedTuple):
    """One attempt to reconnect, with the seconds for the connection.

    `is_separate`: it must not use a connection that the user shares among logins.
    """

    connect_timeout: float
    is_separate: bool


class Login(NamedTuple):
    """A login to a host. `arguments`: those of that function, after the mark."""

    purpose: Purpose
    arguments: tuple[Any, ...] = ()
    attempt: Attempt | None = None


class Lifetime(Enum):
    """How long an agent lives that nobody ends: as long as what is named here."""

    SUPERVISOR = "supervisor"
    """It and its tasks are processes below the supervisor, which inherits what a dead agent leaves
    behind and can resume a suspended one. Tasks have the launch command's environment, and their
    logs are in the job's folder. Other agents have a lease."""
    LINK = "link"
    """A lost link is not reconnected: its host is lost, too."""
    LEASE = "lease"
    """A lost link can be reconnected until the lease ends."""


class HostView(NamedTuple):
    """What the job may use of a host.

    Attributes:
        has_files: whether it has this machine's files at the same path.
        has_python: the same of the interpreter that runs distrun.
        found_as: how a later login finds this very host, such as the name of a pod; empty: by name.
    """

    hello: Hello
    has_files: bool = False
    has_python: bool = False
    found_as: str = ""


class Reach:
    """How one host is reached.

    A subclass overrides what differs from a host that an ssh client or the like leads to. Code
    elsewhere never asks for the kind.
    """

    lifetime: Lifetime = Lifetime.LINK
    connect_timeout: float | None = None
    """Seconds for a connection, the login not counted; None: no limit."""
    release: Callable[[], Process | None] | None = None
    """Gives up all hosts of this kind, which the job has made: it needs them no more. Returns the
    process that removes them, if any; the job has ended once that has. Another host takes the place
    of a lost one at once. None: the job has not made them."""

    def open(self, job_id: str, login: Login) -> Connection:
        """Start the process of a connection, without waiting for it. Raises CauseError."""
        raise NotImplementedError

    def describe(self, hello: Hello) -> HostView:
        """Return what the job may use of a host, by what it has said of itself."""
        return HostView(hello)

    def address(self, hello: Hello, hosts: int, own: str | None) -> str | None:
        """Return the address by which other hosts reach this one; None: its name in the spec.

        `hosts`: how many there are. `own`: this machine's address as other hosts reach it, if any.
        """
        raise NotImplementedError

    def diagnose(
        self, connection: Connection, status: int | None, *, was_up: bool
    ) -> tuple[Cause, bool]:
        """Return why a connection ended, and whether a first one should be tried again.

        `status`: how the process exited, as Popen has it; None: it ran for too long. `was_up`:
        whether the link was established: then the cause is AGENT_EXITED if the agent ended it.
        """
        raise NotImplementedError

    def question(self, connection: Connection, cause: Cause) -> Question | None:
        """Return a question whose answer would say more than a cause; None: there is none."""
        return None


def folder_variable(reach: Reach) -> str:
    """Return the variable that moves the folder of a host's logs to another disk."""
    return "DISTRUN_HOME" if reach.lifetime is Lifetime.SUPERVISOR else "XDG_STATE_HOME"


def make_reach(
    host: HostSpec, spec: Spec, files: Manifest | None = None, found_as: str = ""
) -> Reach:
    """Return how a host is reached: by the module of this package that its spec names."""
    module = importlib.import_module(f"distrun.supervisor.hosts.{host.reach}")
    reach: Reach = module.make_reach(host, spec, files, found_as)
    return reach


def agent_exited(status: int, text: str = "") -> Cause:
    """Return how an agent ended, from the exit status of the connection's process.

    `status`: negative or above 128 for a signal. `text`: the last line on standard error.
    """
    number = -status if status < 0 else status - 128
    if number > 0:
        return Cause(Code.AGENT_EXITED, signal=number, text=text)
    return Cause(Code.AGENT_EXITED, status=status, text=text)
