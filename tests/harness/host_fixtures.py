"""The fixture of tests over ssh: hosts with a real sshd each, and specs that run jobs on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import network as networks
from harness.command import write_spec
from harness.requirements import shared


@pytest.fixture(scope="session")
def network(kept_processes: set[int]) -> Iterator[networks.Network]:
    why_not = networks.why_not()
    yield from shared(networks.Network, kept_processes, why_not, "CI", "REQUIRE_SSH_TESTS")


class Ssh:
    """Hosts that are reached over ssh, and what tests do with them."""

    def __init__(self, network: networks.Network, folder: Path) -> None:
        self.network, self._folder = network, folder

    def hosts(self, count: int) -> list[networks.Host]:
        """So many hosts, as new; a test may cut, change or switch them off."""
        return self.network.hosts(count)

    def spec(self, script: str, on: list[networks.Host], name: str = "job", **keys: Any) -> Path:
        """Write a spec whose workers, one a host, run a shell script; more keys as keywords."""
        keys.setdefault("hosts", [host.name for host in on])
        keys.setdefault("ssh", {"config_file": str(self.network.ssh_config)})
        return write_spec(self._folder, script, len(on), name, **keys)

    def processes(self, host: networks.Host, name: str | None = None) -> list[psutil.Process]:
        return networks.processes_on(host, name)


@pytest.fixture
def ssh(network: networks.Network, tmp_path: Path) -> Iterator[Ssh]:
    yield Ssh(network, tmp_path)
    network.mend()
