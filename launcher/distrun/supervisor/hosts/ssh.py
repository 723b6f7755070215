"""Another host's agent, reached by the system's OpenSSH client.

What the user has set up holds: ~/.ssh/config, agents, jump hosts, known hosts. Nobody is asked
anything (BatchMode), and how host keys are checked is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from distrun.agent.protocol.framing import ChecksummedReceiver
from distrun.supervisor.hosts.bootstrap import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.spec.model import SshSpec

_PIPE_BYTES = 512 * 1024
_PIPE_RESERVE = 32 * 1024
_PIPE_FILLING = 0.5
"""What of a pipe's room may be counted on: in the worst case half of each page stays empty, for
a write that does not fit behind the one before begins a page of its own. See pipe(7)."""
_COMPLAINT_BYTES = 8000
_MARK_BYTES = 16
_ALIVE_PROBES = 3

_OURS = (
    "BatchMode=yes",  # what would ask fails instead
    "RequestTTY=no",
    "EscapeChar=none",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",  # ports forwarded for logins would be taken by the first host
    "ControlMaster=no",  # a master would outlive the job
)
"""Options that the link depends on; a spec's own cannot change them."""
_OURS_SINCE_8_7 = ("ForkAfterAuthentication=no", "StdinNull=no", "SessionType=default")
"""More of them; an older ssh knows none of these, and would not start."""


def ssh_argv(
    host: str, settings: SshSpec, alive: int, connect_timeout: float, *, is_apart: bool = False
) -> list[str]:
    """The command that opens a link to a host.

    Args:
        host: its name, or user@name.
        settings: the spec's `ssh`.
        alive: seconds of silence after which ssh asks the other side for a sign of life.
        connect_timeout: seconds for the connection.
        is_apart: not over a connection that the user shares among logins (ControlPath).
    """
    words = ["ssh", "-T", "-x", *_said_by(settings, host)]
    # Of an option that is given twice ssh takes the first.
    options = [*_OURS, *(_OURS_SINCE_8_7 if _version() >= (8, 7) else ())]
    options += ["ControlPath=none"] if is_apart else []
    options += [f"{name}={value}" for name, value in settings.options.items()]
    options += [
        f"ConnectTimeout={max(1, round(connect_timeout))}",
        f"ServerAliveInterval={alive}",
        f"ServerAliveCountMax={_ALIVE_PROBES}",
        "LogLevel=INFO",  # the level at which ssh says why a connection has ended
    ]
    for option in options:
        words += ["-o", option]
    return [*words, "--", host, COMMAND]


def by_hand(host: str, settings: SshSpec, *command: str) -> str:
    """How somebody logs in to a host from a shell, just as the spec has it."""
    options = [f"-o{name}={value}" for name, value in settings.options.items()]
    return shlex.join(["ssh", *_said_by(settings, host), *options, host, *command])


def _said_by(settings: SshSpec, host: str) -> list[str]:
    words = []
    if settings.config_file is not None:
        words += ["-F", settings.config_file]
    if settings.port is not None:
        words += ["-p", str(settings.port)]
    if settings.user is not None and "@" not in host:
        words += ["-l", settings.user]
    if settings.identity_file is not None:
        words += ["-i", settings.identity_file]
    return words


@lru_cache(maxsize=1)
def _version() -> tuple[int, int]:
    """The client's, (0, 0) where it does not say."""
    with contextlib.suppress(OSError):
        asked = ["ssh", "-V"]
        said = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        found = re.match(rb"OpenSSH_(\d+)\.(\d+)", said.stderr)
        if found:
            return int(found[1]), int(found[2])
    return 0, 0


@dataclass
class SshClient:
    """A running ssh, the channel over it, and what it complains of."""

    process: subprocess.Popen[bytes]
    channel: ChecksummedReceiver
    complaints: int
    """The descriptor on which ssh, the login and the agent complain."""
    window: int
    """Bytes of logs that may be under way: never more than its standard output holds."""
    _said: bytes = b""

    @property
    def has_exited(self) -> bool:
        """Whether it is gone; it is reaped then."""
        return self.process.poll() is not None

    def read_complaints(self) -> bool:
        """Take what has been complained of. False at the end of it."""
        while True:
            try:
                block = os.read(self.complaints, 65536)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not block:
                return False
            self._said = (self._said + block)[-_COMPLAINT_BYTES:]

    def forget_complaints(self) -> None:
        """Drop what came so far: banners and profiles have nothing to do with how a link ends."""
        self.read_complaints()
        self._said = b""

    @property
    def said(self) -> str:
        """The end of what it complained of."""
        return self._said.decode("utf-8", "replace").strip()

    def kill(self) -> None:
        """End it and its proxy's command at once. The agent takes that for a lost link."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def close(self) -> None:
        self.channel.close()
        os.close(self.complaints)


def new_mark() -> bytes:
    """What tells the link's beginning from all that a login may print."""
    return b"\ndistrun:" + os.urandom(_MARK_BYTES).hex().encode("ascii") + b"\n"


def open_link(argv: list[str], mark: bytes, job_id: str) -> SshClient:
    """Start ssh in a session of its own; raises OSError where there is none."""
    with contextlib.ExitStack() as undo:
        ours_in, theirs_in = _pipe(undo)
        complaints, theirs_err = _pipe(undo)
        reader, theirs_out = _pipe(undo)
        room = _enlarge(theirs_out)
        # Open for reading as well: when this process dies, ssh's writing does not fail. Else it
        # would tell the other side that output is not wanted any more, and a lost link looks
        # just so; this way only standard input ends there.
        both_ways = os.open(f"/proc/self/fd/{theirs_out}", os.O_RDWR | os.O_CLOEXEC)
        undo.callback(os.close, both_ways)
        with _sigterm_blocked():
            process = subprocess.Popen(
                argv,
                stdin=ours_in,
                stdout=both_ways,
                stderr=theirs_err,
                start_new_session=True,
                # BatchMode is for this client; the one of a jump host would ask in a window.
                env={**os.environ, "DISTRUN_JOB_ID": job_id, "SSH_ASKPASS_REQUIRE": "never"},
            )
        undo.pop_all()
        for descriptor in (ours_in, theirs_err, theirs_out, both_ways):
            os.close(descriptor)
    os.set_blocking(complaints, False)
    channel = ChecksummedReceiver(reader, theirs_in, mark)
    return SshClient(process, channel, complaints, _window(room))


@contextlib.contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """What is started meanwhile never hears SIGTERM: whoever ends what is left asks by it first.

    ssh is to go on then: it is telling the other side that standard input has ended. That SIGTERM
    is ignored would not do: one that shares the connection of another changes that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    return reader, writer


def _window(room: int) -> int:
    """Bytes of logs that fit into a pipe of that much room beside all else that is sent."""
    usable = int(room * _PIPE_FILLING)
    return usable - min(_PIPE_RESERVE, usable // 2)


def _enlarge(pipe: int) -> int:
    """Make room in a pipe, as far as the user may; returns its bytes."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
