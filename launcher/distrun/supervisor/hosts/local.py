"""This machine's agent: a process below the supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Order, Report
from distrun.agent.protocol.channel import Channel

_SOURCES = str(Path(__file__).resolve().parents[3])
_STUB = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"


def isolated_python(module: str, *args: str) -> list[str]:
    """A command that runs `main` of one of distrun's modules that need no other package.

    It starts in 10 ms, and nothing in the working folder or in PYTHON* variables reaches it.
    """
    return [sys.executable, "-I", "-S", "-c", _STUB.format(module=module), _SOURCES, *args]


@dataclass
class AgentLink:
    """A host's agent: the channel to it, and the process here that stands for it."""

    host: str
    channel: Channel[Report, Order]
    process: subprocess.Popen[bytes]

    def has_exited(self) -> bool:
        """Whether that process is gone; it is reaped then."""
        return self.process.poll() is not None

    @property
    def death(self) -> str:
        """How it ended, for people."""
        status = self.process.returncode
        number = -status if status < 0 else status - 128
        if number > 0:
            return f"its agent was killed by {signal_name(number)}"
        return f"its agent exited with {status}"


def start_local_agent(host: str, job_id: str) -> AgentLink:
    """Start this machine's agent, below this process and in its session."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            isolated_python("distrun.agent.main", "agent", job_id),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            env={**os.environ, "DISTRUN_JOB_ID": job_id},
        )
    descriptor = ours.detach()
    return AgentLink(host, Channel(descriptor, descriptor, Report), process)
