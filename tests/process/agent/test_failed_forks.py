"""Where no process can be made, nothing stays open of what was prepared for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NoReturn

import pytest

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.probe.forked_call import ForkedCall
from distrun.agent.protocol import Code
from distrun.agent.protocol.causes import CauseError
from distrun.agent.tasks.gpu_usage import GpuUsage
from distrun.supervisor.hosts import local
from distrun.supervisor.hosts.reach import Login, Purpose
from distrun.supervisor.hosts.ssh import open_connection


def connect_by_fork(_: Loop) -> None:
    local.become_supervisor()
    local.LocalReach().open("job-a", Login(Purpose.AGENT))


CASES: dict[str, Callable[[Loop], object]] = {
    "a call in a child": lambda loop: ForkedCall(loop, protocol.Report, 0.0, print),
    "a question for GPUs": lambda loop: GpuUsage(loop).ask(0.0, 0.0),
    "the agent": connect_by_fork,
    "an ssh client": lambda _: open_connection(["no-such-ssh"], "job-a", Code.SSH_NOT_STARTED),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_stays_open(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(local, "_inherited_limit", None)
    before = descriptors()
    for _ in range(2):
        with closing(Loop()) as loop, suppress(OSError, CauseError):
            CASES[case](loop)
    assert descriptors() == before


def descriptors() -> list[str]:
    """What this process has open, without what is closed by the time that it is looked at."""
    found = []
    for each in sorted(os.listdir("/proc/self/fd")):
        with suppress(FileNotFoundError):
            found.append(f"{each}: {os.readlink(f'/proc/self/fd/{each}')}")
    return found
