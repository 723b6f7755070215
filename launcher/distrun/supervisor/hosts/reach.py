"""The seam for ways to reach a host.

A new way is one module of this package, with a class derived from :class:`Reach` and a function
`make_reach`, and one section of the spec that selects it (:attr:`HostSpec.reach` has the module's
name). No other code asks how a host is reached: it reads the attributes of its reach.
"""

# ruff: noqa: ARG002, D417 - all reaches have the same parameters

from __future__ import annotations

import errno
import fcntl
import functools
import importlib
import os
import signal
import sys
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from distrun.agent.protocol import Cause, Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distrun.agent.protocol import Hello
    from distrun.spec.model import HostSpec, Spec
    from distrun.supervisor.forked_process import Process
    from distrun.supervisor.hosts.host_channel import HostChannel
    from distrun.supervisor.hosts.inquiry import Question
    from distrun.supervisor.hosts.reconnect import Attempt
    from distrun.sync.manifest import Manifest

FORK_ERRORS = (errno.EAGAIN, errno.ENOMEM)
"""An agent that cannot fork exits with such a number."""
_STDERR_BYTES = 8000
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
    """Whether the agent was told to send its logs through it."""
    has_own_session: bool = False
    """Whether the process leads a session, and so a process group."""
    mark: bytes = b""
    """The bytes that the agent writes first, to tell its messages from a login's output."""
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
        """The end of what was read from standard error."""
        return self._printed.decode("utf-8", "replace").strip()

    @property
    def has_read_agent(self) -> bool:
        """Whether the process may have read all of the agent; if not, none has been started."""
        if not self.agent_size:
            return True
        unread = fcntl.ioctl(self.channel.writer, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(unread, sys.byteorder) < self.agent_size

    def close(self) -> None:
        """Kill the process and what it started in its session, and close the descriptors.

        It is not waited for: a process that waits for a disk dies only afterwards. Who handles
        SIGCHLD reaps it, as any child that nobody asks for.
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


class Logins:
    """What the hosts of a job said of their logins. All hosts are asked for one plan."""

    def __init__(self, hellos: Iterable[Hello]) -> None:
        self._hellos = tuple(hellos)

    def __len__(self) -> int:
        return len(self._hellos)

    def find_own_address(self) -> str | None:
        """Return this machine's address as other hosts reach it; None if there is none."""
        return self._own_address

    @functools.cached_property
    def _own_address(self) -> str | None:
        # Imported here because a job on one machine needs no address.
        from distrun.supervisor.hosts.addresses import own_address

        return own_address(self._hellos)


class Reach(Protocol):
    """How one host is reached.

    The attributes are facts. Each subclass sets them; code elsewhere reads them and never asks
    for the kind.
    """

    kind: str
    """A label for people, such as "ssh"; no code may depend on it."""
    can_reattach: bool = False
    """Whether a lost link can be reconnected. If not, a host with a lost link is gone."""
    has_lease: bool = False
    """Whether an agent that is never reconnected sends heartbeats, and ends its tasks after
    `timeouts.link` without an answer. One that can be reconnected always does."""
    files: Manifest | None = None
    """The program's files, if any are sent to hosts that lack them."""
    has_own_logs: bool = True
    """Whether tasks write their logs on the host; they are then mirrored into the job's folder. If
    not, tasks write directly into that folder."""
    lacks_files: bool = True
    """Whether the program's files must be sent to the host."""
    inherits_environment: bool = False
    """Whether tasks inherit the environment of the launch command."""
    needs_preflight: bool = True
    """Whether the host is checked before the first task starts."""
    keeps_files: bool = False
    """Whether a further login finds what tasks have written on the host, also after the job."""
    is_below_supervisor: bool = False
    """Whether the agent and its tasks are processes below the supervisor, which inherits what a
    dead agent leaves behind and can resume a suspended one."""
    default_python: str = "python3"
    """The interpreter of tasks for which the spec names none."""
    folder_variable: str = "XDG_STATE_HOME"
    """The variable that moves the folder of the host's logs to another disk."""
    connect_timeout: float | None = None
    """Seconds for a connection, the login not counted; None: no limit."""

    def connect(self, job_id: str) -> Connection:
        """Start the process of a first connection, without waiting for it.

        Raises:
            OSError: the process cannot be started.
        """
        ...

    def bootstrap(self, connection: Connection) -> bytes:
        """Return the bytes that start the agent at the other end; none if it is started already.

        It is called when all connections of a round have been started, because it may be slow.
        """
        return b""

    def record_copy(self, path: str) -> None:
        """Take note of where the host keeps the agent's modules; the path may be empty."""
        return

    def forget_copy(self, connection: Connection) -> bool:
        """Forget that the host keeps them if it says, before its agent starts, that it does not.

        Returns whether it said so for the first time: :meth:`bootstrap` then sends them again.
        """
        return False

    def reconnect(
        self, job_id: str, token: str, attempts: Mapping[str, int], attempt: Attempt
    ) -> Connection:
        """Start a new connection to the running agent with that token.

        It is only called if :attr:`can_reattach`. It also sends the bytes that lead to the agent.

        Args:
            attempts: the last attempt of each of the agent's tasks: if it is gone, the host ends
                what is left of them.

        Raises:
            OSError: the process cannot be started.
        """
        raise AssertionError(f"{self.kind} hosts are not reconnected")

    def end_former(
        self, job_id: str, arguments: tuple[object, ...], attempt: Attempt
    ) -> Connection:
        """Start a connection that ends what an earlier supervisor of the job has left on the host.

        Args:
            arguments: those of :func:`distrun.agent.former.main` between mark and exit code.

        Raises:
            OSError: the process cannot be started.
        """
        raise AssertionError(f"{self.kind} hosts keep nothing of an earlier supervisor")

    def address(self, hello: Hello, logins: Logins) -> str | None:
        """Return the address by which other hosts reach this one; None: its name in the spec.

        Args:
            hello: the host's own facts.
            logins: those of all hosts of the job.
        """
        ...

    def usable(self, hello: Hello) -> Hello:
        """Return the facts of the host with what the job may use of it."""
        return hello

    def not_started(self, error: OSError) -> Cause:
        """Return why :meth:`connect` or :meth:`reconnect` raised that error."""
        return Cause(Code.AGENT_NOT_STARTED, errno=error.errno or 0)

    def diagnose(self, connection: Connection, status: int | None) -> Cause:
        """Return why the first connection to the host failed, without waiting for anything.

        Args:
            status: how the process exited, as Popen has it; None: it ran for too long.
        """
        ...

    def question(self, connection: Connection, status: int | None, cause: Cause) -> Question | None:
        """Return what would tell more than a cause does; None: nothing.

        Args:
            connection: it may be closed when the question is asked.
            status: how the process exited; None: it has not.
            cause: of a failed connection, of its loss, of a fault of the agent, or of this
                process's SIGTERM.
        """
        return None

    def answered(self, connection: Connection, cause: Cause, answer: Cause | None) -> Cause:
        """Return the cause of :meth:`question` with its answer; None: there is no answer."""
        return answer or cause

    def is_transient(self, connection: Connection, status: int) -> bool:
        """Return whether a failed first connection should be tried again."""
        return False

    def loss(self, connection: Connection, status: int) -> Cause:
        """Return why an established link ended: AGENT_EXITED if the agent did, else the link."""
        return agent_exited(status)

    def may_live_on(self, cause: Cause) -> bool:
        """Whether an agent with a lease may continue until its end after a loss of the link."""
        return False

    def agent_is_gone(self, connection: Connection, status: int | None) -> bool:
        """Return whether a new connection found that the agent and its tasks are gone.

        Args:
            status: how the process exited, or None while it runs.
        """
        return False

    def outlives_job(self, pid: int) -> bool:
        """Return whether a process below this one outlives the job because others use it too.

        Also a process that ends by itself after :meth:`release`.
        """
        return False

    def release(self) -> Process | None:
        """Give up all hosts of this kind: the job needs them no more.

        Returns the process that removes them, if any; the job has ended once that has.
        """
        return None


def make_reach(host: HostSpec, spec: Spec) -> Reach:
    """Return how a host is reached: by the module of this package that its spec names."""
    module = importlib.import_module(f"distrun.supervisor.hosts.{host.reach}")
    reach: Reach = module.make_reach(host, spec)
    return reach


def agent_exited(status: int, text: str = "") -> Cause:
    """Return how an agent ended, from the exit status of the connection's process.

    Args:
        status: negative or above 128 for a signal.
        text: the last line on standard error.
    """
    number = -status if status < 0 else status - 128
    if number > 0:
        return Cause(Code.AGENT_EXITED, signal=number, text=text)
    return Cause(Code.AGENT_EXITED, status=status, text=text)
