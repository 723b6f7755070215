"""nvidia-smi takes seconds on some hosts, and hangs with its driver: the agent does not wait."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from distrun.agent import protocol
from distrun.agent.linux import facts
from harness.agents import TIMEOUT, Host, MakeHost, children_of
from harness.processes import alive
from harness.waiting import wait_until

NVIDIA_SMI = """#!/bin/sh
read -r _ < {gate}
printf '0\\n1\\n'
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe that lets nvidia-smi answer."""
    path, program = tmp_path / "gate", tmp_path / "programs" / "nvidia-smi"
    os.mkfifo(path)
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI.format(gate=path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return path


@pytest.fixture
def host(gate: Path, make_host: MakeHost) -> Host:
    """An agent that waits for nvidia-smi."""
    host = make_host(configured=False)
    host.send(protocol.Configure(protocol.PROTOCOL, host.job_id, str(host.folder), 0.0))
    return host


def test_orders_are_executed_while_nvidia_smi_runs(gate: Path, host: Host) -> None:
    host.send(protocol.HoldPorts(free=1, wanted=[]))
    assert len(host.expect(protocol.PortsHeld).chosen) == 1
    assert not host.all(protocol.Hello)
    gate.write_text("go on\n")
    assert host.expect(protocol.Hello).gpus == [0, 1]


def test_an_nvidia_smi_that_hangs_ends_with_its_agent(host: Host) -> None:
    def family() -> list[psutil.Process]:
        found = children_of(host.guard)
        return found if any("nvidia-smi" in " ".join(each.cmdline()) for each in found) else []

    started = wait_until(family, timeout=TIMEOUT)
    host.hang_up()
    # Sooner than nvidia-smi is given up.
    wait_until(lambda: not any(map(alive, started)), timeout=facts.NVIDIA_SMI_SECONDS / 2)
