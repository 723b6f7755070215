"""The real agent as a process, driven over its protocol by what a supervisor uses."""

import collections
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import psutil
import pytest

from distrun.agent import protocol
from distrun.supervisor.hosts import local
from distrun.supervisor.hosts.reach import Connection, Login, Purpose
from harness.processes import descendants
from harness.waiting import wait_until

R = TypeVar("R")


def with_stub(stub: str, command: list[str]) -> list[str]:
    """The command of an agent with other first words of Python; `{module}` is the agent's."""
    at = command.index("-c") + 1
    return [*command[:at], stub.format(module="distrun.agent.main"), *command[at + 1 :]]


TIMEOUT = 60.0
ChangedCommand = Callable[[list[str]], list[str]]
"""Returns the command that starts an agent as a test needs it."""
PLAIN_PYTHON = [sys.executable, "-I", "-S"]


def open_local(job_id: str) -> Connection:
    """Start an agent on this machine."""
    return local.LocalReach().open(job_id, Login(Purpose.AGENT))


def local_address(hello: protocol.Hello, hosts: int, own: str | None) -> str | None:
    """The address by which others reach this machine, as :meth:`.Reach.address` has it."""
    return local.LocalReach().address(hello, hosts, own)


class Host:
    """An agent and what it has said; `job_id` is in its tasks' environment."""

    def __init__(self, folder: Path, job_id: str, changed: ChangedCommand) -> None:
        self.folder = folder
        self.job_id = job_id
        usual = local.isolated_python
        with mock.patch.object(local, "isolated_python", lambda *args: changed(usual(*args))):
            self.link = open_local(job_id)
        self.said: list[Any] = []
        self.seqs: list[int] = []
        self._unseen: collections.deque[Any] = collections.deque()
        self.pid = 0

    @property
    def guard(self) -> int:
        return self.link.process.pid

    def configure(self, lease: float | None = 0.0) -> protocol.Hello:
        self.send(protocol.Configure(protocol.PROTOCOL, self.job_id, str(self.folder), lease))
        hello = self.expect(protocol.Hello)
        self.pid = hello.pid
        return hello

    def send(self, message: Any) -> None:
        self.link.channel.send(message)
        deadline = time.monotonic() + TIMEOUT
        while self.link.channel.pending and time.monotonic() < deadline:
            self.receive(0.01)
            self.link.channel.flush()

    def start(self, task: str, *argv: str, **options: Any) -> None:
        """Start `argv`; `env` and wire.StartTask's other fields as options."""
        given = options.pop("env", {})
        fields = {
            "attempt": 0,
            "workdir": str(self.folder),
            "log": f"{task.replace(':', '-')}.log",
            "unset": [],
            **options,
        }
        env = {"DISTRUN_JOB_ID": self.job_id, "DISTRUN_TASK": task, **given}
        self.send(protocol.StartTask(task=task, argv=list(argv), env=env, **fields))

    def run(self, task: str, *argv: str, **options: Any) -> protocol.TaskStarted:
        self.start(task, *argv, **options)
        return self.expect(protocol.TaskStarted, task)

    def stop(self, task: str, signum: int = signal.SIGTERM, grace: float = 10.0) -> None:
        self.send(protocol.StopTask(task, signum, grace))

    def expect(self, kind: type[R], task: str | None = None, timeout: float = TIMEOUT) -> R:
        """The next report of that kind (and task); what else came stays for later calls."""
        deadline = time.monotonic() + timeout
        passed: list[Any] = []
        while True:
            while self._unseen:
                message = self._unseen.popleft()
                if isinstance(message, kind) and task in (None, getattr(message, "task", None)):
                    self._unseen.extendleft(reversed(passed))
                    return message
                passed.append(message)
            if self.link.channel.ended or time.monotonic() > deadline:
                pytest.fail(f"no {kind.__name__} of {task}; it said {self.said}")
            self.receive(deadline - time.monotonic())

    def receive(self, timeout: float) -> None:
        """Take in what comes within `timeout` seconds; return after the first of it."""
        select.select([self.link.channel.reader], [], [], max(0.0, timeout))
        for seq, message in self.link.channel.receive():
            self.said.append(message)
            self.seqs.append(seq)
            self._unseen.append(message)

    def expect_end(self, timeout: float = TIMEOUT) -> int:
        """The guard's exit status, once the link has ended and all it said is read."""
        deadline = time.monotonic() + timeout
        while not self.link.channel.ended and time.monotonic() < deadline:
            self.receive(deadline - time.monotonic())
        return self.link.process.wait(max(0.1, deadline - time.monotonic()))

    def all(self, kind: type[R]) -> list[R]:
        return [message for message in self.said if isinstance(message, kind)]

    def log(self, task: str) -> bytes:
        return (self.folder / f"{task.replace(':', '-')}.log").read_bytes()

    def lines(self, task: str) -> list[str]:
        return self.log(task).decode().splitlines()

    def hang_up(self) -> None:
        if not (self.link.channel.broken and self.link.channel.ended):
            self.link.channel.close()

    def close(self) -> None:
        if self.link.process.poll() is None:
            for pid in (self.pid, self.guard):
                with contextlib.suppress(ProcessLookupError):
                    if pid:
                        os.kill(pid, signal.SIGCONT)
        self.hang_up()
        try:
            self.link.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.link.process.kill()
            self.link.process.wait()
            raise


class MakeHost:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.hosts: list[Host] = []

    def __call__(
        self, *, configured: bool = True, job_id: str = "job-a", changed: ChangedCommand = list
    ) -> Host:
        host = Host(self._folder / f"logs {len(self.hosts)} 'of' it\n", job_id, changed)
        self.hosts.append(host)
        if configured:
            host.configure()
        return host


def script(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text)
    return [*PLAIN_PYTHON, str(path)]


# Catches SIGTERM and says so; argv: its name, and how its child is to leave it.
CATCHER = """
import os, signal, sys, time
name = sys.argv[1]
signal.signal(signal.SIGTERM, lambda *_: os.write(1, f"{name} told\\n".encode()))
os.write(1, f"{name} ready {os.getpid()}\\n".encode())
while True:  # not pause(): the signal may come just before it
    time.sleep(0.05)
"""

SLEEP = shutil.which("sleep") or "/bin/sleep"


def pids_of(host: Host, task: str, count: int) -> list[int]:
    """The process ids that `ready PID` lines of a log name, once there are `count`."""

    def named() -> list[int]:
        return [int(line.split()[2]) for line in host.lines(task) if " ready " in line]

    what = f"{count} processes of {task} ready"
    wait_until(lambda: len(named()) >= count, timeout=TIMEOUT, what=what)
    return named()


def children_of(pid: int) -> list[psutil.Process]:
    return list(descendants(pid))
