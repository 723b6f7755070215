"""The reach of other hosts over ssh, by the system's OpenSSH client.

The user's setup holds: ~/.ssh/config, agents, jump hosts, known hosts. ssh never asks anything
(BatchMode), and the checking of host keys is never changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from functools import cache, partial

from distrun.agent.linux import facts, syscalls
from distrun.agent.protocol import Cause, Code, Hello
from distrun.agent.protocol.causes import CauseError
from distrun.spec.host_spec import HostSpec
from distrun.spec.machine import STARTER
from distrun.spec.model import Spec
from distrun.supervisor.hosts import bootstrap, ssh_diagnosis
from distrun.supervisor.hosts.addresses import login_address
from distrun.supervisor.hosts.background_calls import Question
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver
from distrun.supervisor.hosts.link import LOGIN_SECONDS
from distrun.supervisor.hosts.reach import Connection, Lifetime, Login, Reach, agent_exited
from distrun.supervisor.hosts.sent_agents import sent_agents
from distrun.supervisor.hosts.ssh_command import link_command, shared_connection

_PIPE_BYTES = 512 * 1024
_PIPE_RESERVE = 32 * 1024
_PIPE_FILLING = 0.5
"""The part of a pipe's capacity that is certain to fit. In the worst case half of each page stays
empty, because a write that does not fit behind the last one starts a new page. See pipe(7)."""
_MARK_BYTES = 16
_REFUSALS = (Code.HOST_KEY_CHANGED, Code.HOST_KEY_UNKNOWN, Code.LOGIN_REFUSED)
"""Why a host to which there was a link is not reached again until somebody does something."""
_ALIVE_SECONDS = 10
"""The interval of ssh's own probes if `timeouts.link` is off."""


class SshReach(Reach):
    """A host by its name in the spec. Its agent outlives a lost link for `timeouts.link`."""

    lifetime = Lifetime.LEASE

    def __init__(self, host: str, spec: Spec) -> None:
        lease = spec.timeouts.link
        self._host = host
        self._settings = spec.ssh
        self._alive_interval = _ALIVE_SECONDS if lease is None else max(1, round(lease / 4))
        self.connect_timeout: float = spec.ssh.connect_timeout

    def open(self, job_id: str, login: Login) -> Connection:
        attempt = login.attempt
        command = link_command(
            self._host,
            self._settings,
            self._alive_interval,
            self.connect_timeout if attempt is None else attempt.connect_timeout,
            is_separate=attempt is not None and attempt.is_separate,
        )
        connection = open_connection(command, job_id, Code.SSH_NOT_STARTED)
        connection.begin(login, partial(self._start_agent, connection))
        return connection

    def _start_agent(self, connection: Connection) -> bytes:
        connection.copy_key = key = sent_agents().key(self._host, self._settings)
        return bootstrap.start_agent(connection.mark, sent_agents().path(key))

    def address(self, hello: Hello, hosts: int, own: str | None) -> str | None:
        return login_address(hello, hosts, own)

    def diagnose(
        self, connection: Connection, status: int | None, *, was_up: bool
    ) -> tuple[Cause, bool]:
        seconds = self.connect_timeout + LOGIN_SECONDS
        printed = connection.stderr_text
        cause = ssh_diagnosis.diagnose(
            self._host, self._settings, status, printed, connection.noise, seconds
        )
        if was_up and cause.code not in _REFUSALS:
            return _loss(connection, status or 0), False
        return cause, ssh_diagnosis.is_transient(status or 0, printed)

    def question(self, _: Connection, cause: Cause) -> Question | None:
        if cause.code in (Code.LOGIN_TIMED_OUT, Code.BANNER_MISSING):
            return Question(self._host, partial(self._ask, cause))
        return None

    def _ask(self, cause: Cause) -> Cause:
        """Add what ssh says of its configuration, which may take seconds."""
        name, path = shared_connection(self._host, self._settings)
        return cause._replace(name=name, path=path)


def _loss(connection: Connection, status: int) -> Cause:
    text = ssh_diagnosis.last_line(connection.stderr_text)
    if 0 <= status != ssh_diagnosis.SSH_FAILED:
        return agent_exited(status, text)  # ssh passes on the exit code of what it ran
    if status < 0:
        return Cause(Code.SSH_ENDED, signal=-status)
    return Cause(Code.SSH_ENDED, status=status, text=text)


def open_connection(
    command: list[str],
    job_id: str,
    code: Code,
    environ: Mapping[str, str] | None = None,
    kept: Collection[int] = (),
) -> Connection:
    """Start ssh, or another client, in a session of its own.

    Raises CauseError with this code if there is no such client. `environ`: the rest of the client's
    environment; None: this process's. `kept`: descriptors that it inherits.
    """
    mark = b"\ndistrun:" + os.urandom(_MARK_BYTES).hex().encode("ascii") + b"\n"
    try:
        with contextlib.ExitStack() as undo:
            ssh_stdin, writer = _pipe(undo)
            stderr, ssh_stderr = _pipe(undo)
            reader, ssh_stdout = _pipe(undo)
            capacity = _enlarge(ssh_stdout)
            # Open for reading as well, so that ssh's writes do not fail when this process dies. ssh
            # would then close the other side's standard output, as if the link were lost. This way
            # only standard input ends there.
            both_ways = os.open(f"/proc/self/fd/{ssh_stdout}", os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, both_ways)
            # ssh must live on after a SIGTERM to all, because it is telling the other side that
            # standard input has ended. SIGHUP ends its proxy's command, which inherits this.
            with syscalls.blocked((signal.SIGTERM, signal.SIGINT)):
                process = subprocess.Popen(
                    [STARTER, _path(command[0], tuple(os.get_exec_path())), *command[1:]],
                    stdin=ssh_stdin,
                    stdout=both_ways,
                    stderr=ssh_stderr,
                    start_new_session=True,
                    pass_fds=tuple(kept),
                    # BatchMode binds this client only; that of a jump host would open a window.
                    env={
                        **(os.environ if environ is None else environ),
                        "DISTRUN_JOB_ID": job_id,
                        "SSH_ASKPASS_REQUIRE": "never",
                    },
                )
            undo.pop_all()
            for descriptor in (ssh_stdin, ssh_stderr, ssh_stdout, both_ways):
                os.close(descriptor)
    except OSError as error:
        raise CauseError(Cause(code, errno=error.errno or 0)) from error
    os.set_blocking(stderr, False)
    return Connection(
        process,
        ChecksummedReceiver(reader, writer, mark),
        stderr,
        log_window=_log_window(capacity),
        has_own_session=True,
        mark=mark,
    )


@cache
def _path(program: str, folders: tuple[str, ...]) -> str:
    """Search for a program once. Raises FileNotFoundError: none of the folders has it."""
    found = facts.find_program(program, folders)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    return reader, writer


def _log_window(capacity: int) -> int:
    """How many bytes of logs fit into a pipe of that capacity beside other messages."""
    usable = int(capacity * _PIPE_FILLING)
    return usable - min(_PIPE_RESERVE, usable // 2)


def _enlarge(pipe: int) -> int:
    """Enlarge a pipe as far as the user may. Returns its capacity in bytes."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def make_reach(host: HostSpec, spec: Spec, _files: object, _found_as: str) -> Reach:
    return SshReach(host.name, spec)
