"""What is sent to a task's DISTRUN_NOTIFY by others than the task, or without end."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from distrun.agent import protocol
from distrun.agent.protocol import Code
from harness.agents import TIMEOUT, Host, script
from harness.strangers import Stranger
from harness.waiting import wait_until

# Prints its address; at each SIGUSR1 it has a child report the next step.
SPEAKER = """
import os, signal, socket
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(os.environ["DISTRUN_NOTIFY"], flush=True)
step = 0
while True:
    signal.sigwait([signal.SIGUSR1])
    step += 1
    if os.fork() == 0:  # a child of the task's first process is a process of the task, too
        os.setsid()
        sender.send(b"STEP=%d" % step)
        signal.pause()
"""
FLOOD = """
import os, socket
print(os.environ["DISTRUN_NOTIFY"], flush=True)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
number = 0
while True:
    number += 1
    sender.send(b" ".join(b"KEY%d%d=%s" % (number, each, b"x" * 100) for each in range(30)))
"""
MOST_MEMORY = 40_000_000
"""Bytes that an agent may need at most; it needs less than half of them."""


class Speaker:
    """A task that reports a step whenever it is asked to."""

    def __init__(self, host: Host, folder: Path, name: str) -> None:
        self._host, self._name = host, name
        self._pid = host.run(name, *script(folder, f"{name}.py", SPEAKER)).pid
        wait_until(lambda: host.lines(name), timeout=TIMEOUT)
        self.address = "\0" + host.lines(name)[0][1:]

    def step(self) -> dict[str, str]:
        """Have it report its next step, and return the values that the supervisor receives."""
        os.kill(self._pid, signal.SIGUSR1)
        return self._host.expect(protocol.Progress, self._name).values


@pytest.fixture
def speaker(host: Host, tmp_path: Path) -> Speaker:
    return Speaker(host, tmp_path, "worker:0")


def sending(address: str, datagrams: Iterator[bytes]) -> Callable[[Callable[[str], None]], None]:
    """Return an attack that sends these and then stays."""

    def attack(report: Callable[[str], None]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for number, datagram in enumerate(datagrams):
                sender.sendto(datagram, address)
                if number == 0:
                    report("sent")
        signal.pause()

    return attack


def endless() -> Iterator[bytes]:
    for number in itertools.count():
        yield b" ".join(b"KEY%d%d=%s" % (number, each, b"x" * 100) for each in range(30))


def test_a_stranger_cannot_set_a_tasks_progress(host: Host, speaker: Speaker) -> None:
    with Stranger(sending(speaker.address, iter([b"STEP=1000000"] * 2))) as stranger:
        assert stranger.report() == "sent"
        told = host.expect(protocol.ProgressIgnored)
        assert told.task == "worker:0"
        assert told.cause.code is Code.PROGRESS_FROM_STRANGER
        assert told.cause.pid == stranger.pid
        assert speaker.step() == {"STEP": "1"}
    assert len(host.all(protocol.ProgressIgnored)) == 1


def test_a_task_does_not_speak_for_another(host: Host, tmp_path: Path, speaker: Speaker) -> None:
    other = script(
        tmp_path,
        "other.py",
        f"import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"s.sendto(b'STEP=1000000', {speaker.address!r}); time.sleep(600)",
    )
    host.run("worker:1", *other)
    told = host.expect(protocol.ProgressIgnored)
    assert told.task == "worker:0"
    assert speaker.step() == {"STEP": "1"}


def test_a_strangers_flood_harms_neither_the_agent_nor_the_progress(
    host: Host, speaker: Speaker
) -> None:
    with Stranger(sending(speaker.address, endless())) as stranger:
        assert stranger.report() == "sent"
        for step in range(1, 3):
            assert speaker.step() == {"STEP": str(step)}
        assert psutil.Process(host.pid).memory_info().rss < MOST_MEMORY
        assert_stops_soon(host, "worker:0")
    assert len(host.all(protocol.ProgressIgnored)) == 1


def test_a_task_that_floods_is_named_and_slows_nothing_down(host: Host, tmp_path: Path) -> None:
    host.run("worker:0", *script(tmp_path, "flood.py", FLOOD))
    told = host.expect(protocol.ProgressIgnored)
    assert (told.task, told.cause.code) == ("worker:0", Code.PROGRESS_EXCESSIVE)
    speaker = Speaker(host, tmp_path, "worker:1")
    agent = psutil.Process(host.pid)
    began, used = time.monotonic(), sum(agent.cpu_times()[:2])
    for step in range(1, 6):
        assert speaker.step() == {"STEP": str(step)}
    used, took = sum(agent.cpu_times()[:2]) - used, time.monotonic() - began
    assert used < took / 2, "the agent is not kept busy"
    assert agent.memory_info().rss < MOST_MEMORY
    for report in host.all(protocol.Progress):
        assert len(report.values) <= 32
    assert_stops_soon(host, "worker:0")
    assert len(host.all(protocol.ProgressIgnored)) == 1


def assert_stops_soon(host: Host, task: str) -> None:
    began = time.monotonic()
    host.stop(task, signal.SIGKILL)
    host.expect(protocol.TaskEnded, task)
    assert time.monotonic() - began < 5.0
