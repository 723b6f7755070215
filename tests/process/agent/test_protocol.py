"""What the agent says of itself, how it keeps to the protocol, and for what it does not wait."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from harness.agents import TIMEOUT, Host, MakeHost, children_of
from harness.command import write_program
from harness.messages import gpus_of
from harness.parts.agent import protocol
from harness.parts.channel import encode
from harness.parts.linux import facts
from harness.parts.protocol import Code
from harness.processes import alive
from harness.pythons import python38
from harness.requirements import skip
from harness.waiting import wait_until


def test_it_says_what_it_is(any_host: Host) -> None:
    if python38() is None:
        skip("there is no Python 3.8", "pyenv install 3.8")
    hello = any_host.all(protocol.Hello)[0]
    assert hello.hostname == socket.gethostname()
    assert 0 < hello.cores <= (os.cpu_count() or 1)
    assert psutil.Process(hello.pid).ppid() == any_host.guard
    assert any_host.folder.stat().st_mode & 0o777 == 0o700
    assert hello.libc == os.confstr("CS_GNU_LIBC_VERSION")


def test_it_refuses_another_protocol(make_host: MakeHost) -> None:
    host = make_host(configured=False)
    host.send(protocol.Configure(999, "job", str(host.folder), 0.0))
    refused = host.expect(protocol.Fault).cause
    assert (refused.code, refused.count) == (Code.PROTOCOL_DIFFERS, 999)
    assert host.expect_end() == 0


def test_it_sends_again_what_was_not_acknowledged(host: Host) -> None:
    host.run("worker:0", "true")
    host.expect(protocol.TaskEnded)
    host.send(protocol.Ack(2))
    host.send(protocol.Reattach(0))
    host.send(protocol.HoldPorts(0, []))
    host.expect(protocol.PortsHeld)
    assert host.all(protocol.Reattached) == [protocol.Reattached(0)]
    assert host.seqs == [1, 2, 3, 4, 0, 3, 4, 5]


def test_noise_on_the_link_ends_it_with_one_fault(any_host: Host) -> None:
    any_host.run("worker:0", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    os.write(any_host.link.channel.writer, b"Welcome to Linux!\n" * 3)
    with socket.socket(fileno=os.dup(any_host.link.channel.writer)) as link:
        link.shutdown(socket.SHUT_WR)
    any_host.expect_end()
    assert len(any_host.all(protocol.Fault)) == 1
    assert any_host.all(protocol.TaskEnded)


def test_the_last_reports_reach_a_reader_that_was_slow(host: Host) -> None:
    # An empty range: each is refused at once.
    orders = encode(protocol.HoldPorts(1, [], 2, 1)) * 1000 + encode(protocol.Shutdown())
    with socket.socket(fileno=os.dup(host.link.channel.writer)) as link:
        link.setblocking(True)
        link.sendall(orders)
    os.set_blocking(host.link.channel.reader, False)
    with contextlib.suppress(subprocess.TimeoutExpired):  # nobody reads meanwhile
        host.link.process.wait(0.5)
    host.expect_end()
    assert len(host.all(protocol.PortsRefused)) == 1000


def test_it_costs_nothing_while_its_tasks_sleep(host: Host) -> None:
    for index in range(16):
        host.run(f"worker:{index}", "sleep", "600")
    agent = psutil.Process(host.pid)

    def used_in_two_seconds() -> float:
        before = agent.cpu_times()
        host.receive(2.0)
        after = agent.cpu_times()
        return (after.user + after.system) - (before.user + before.system)

    wait_until(lambda: used_in_two_seconds() <= 0.02, TIMEOUT)


NVIDIA_SMI = """#!/bin/sh
read -r _ < {gate}
printf '0\\n1\\n'
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe that lets nvidia-smi answer."""
    path, program = tmp_path / "gate", tmp_path / "programs" / "nvidia-smi"
    os.mkfifo(path)
    write_program(program, NVIDIA_SMI.format(gate=path))
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return path


@pytest.fixture
def asked_host(gate: Path, make_host: MakeHost) -> Host:
    """An agent that waits for nvidia-smi."""
    host = make_host(configured=False)
    host.send(protocol.Configure(protocol.PROTOCOL, host.job_id, str(host.folder), 0.0))
    return host


def test_orders_are_executed_while_nvidia_smi_runs(gate: Path, asked_host: Host) -> None:
    asked_host.send(protocol.HoldPorts(free=1, wanted=[]))
    assert len(asked_host.expect(protocol.PortsHeld).chosen) == 1
    assert not asked_host.all(protocol.Hello)
    gate.write_text("go on\n")
    assert gpus_of(asked_host.expect(protocol.Hello)) == [0, 1]


def test_an_nvidia_smi_that_hangs_ends_with_its_agent(asked_host: Host) -> None:
    def family() -> list[psutil.Process]:
        found = children_of(asked_host.guard)
        return found if any("nvidia-smi" in " ".join(each.cmdline()) for each in found) else []

    started = wait_until(family, timeout=TIMEOUT)
    asked_host.hang_up()
    # Sooner than nvidia-smi is given up.
    wait_until(lambda: not any(map(alive, started)), timeout=facts.NVIDIA_SMI_SECONDS / 2)
