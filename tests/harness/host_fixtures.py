"""Fixtures of tests over ssh: hosts with a real sshd each, and specs that run jobs on them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from harness import network as networks
from harness.command import Distrun, Status
from harness.network import CutOff, HasEnded, Hosts, ProcessesOf, RemoteSpec


@pytest.fixture(scope="session")
def network(kept_processes: set[int]) -> Iterator[networks.Network]:
    why_not = networks.why_not()
    if why_not is not None:
        if os.environ.get("CI") or os.environ.get("REQUIRE_SSH_TESTS"):
            pytest.fail(f"no hosts for the tests of ssh: {why_not}")
        pytest.skip(why_not)
    made = networks.Network(kept_processes)
    yield made
    made.close()


@pytest.fixture
def hosts(network: networks.Network) -> Iterator[Hosts]:
    """So many hosts, as new; a test may cut, change or switch them off."""
    yield network.hosts
    network.mend()


@pytest.fixture
def remote_spec(network: networks.Network, tmp_path: Path) -> RemoteSpec:
    """Write a spec whose workers, one a host, run a shell script; more keys as keywords."""

    def write(script: str, on: list[networks.Host], name: str = "job", **keys: Any) -> Path:
        document = {
            "name": name,
            "strategy": "multi_worker_mirrored",
            "cluster": {"worker": len(on)},
            "hosts": [host.name for host in on],
            "ssh": {"config_file": str(network.ssh_config)},
            "program": {"command": ["sh", "-c", script]},
            **keys,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def processes_of() -> ProcessesOf:
    """What runs on a host beside its sshd's listener, sshd's own sessions left out.

    Where a name is given: of that name.
    """
    return networks.processes_on


@pytest.fixture
def has_ended(distrun: Distrun) -> HasEnded:
    """Whether the record of the newest job has the end of a task's attempt."""

    def ended(task: str) -> bool:
        record = map(json.loads, distrun("events", "--json").stdout.splitlines())
        return any((each["event"], each.get("task")) == ("TaskEnded", task) for each in record)

    return ended


@pytest.fixture
def cut_off(status: Status) -> CutOff:
    """Pull the cable of a host, and have the newest job notice that at once.

    Its silence it would notice after a part of the lease, and what a test does then would have to
    be done in the rest of it.
    """

    def cut(host: networks.Host) -> None:
        host.cut()
        started = psutil.Process(status()["supervisor_pid"]).children()
        (client,) = [each for each in started if host.name in each.cmdline()]
        client.kill()

    return cut
