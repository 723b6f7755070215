"""A jump host whose connection the user's ssh shares among logins, and which dies or hangs."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.network import Host, Hosts, Network, RemoteSpec
from harness.waiting import wait_until

# The firewall of the jump host no longer knows a connection: neither side receives on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


class Jump:
    """The way to h2 through h1, whose connection is shared: its configuration and its master."""

    def __init__(self, config: Path, socket: Path, host: Host) -> None:
        self.config, self.socket, self.host = config, socket, host
        self.masters: list[psutil.Process] = []

    def master(self) -> psutil.Process:
        """The process that has the connection."""
        ask = ["ssh", "-F", str(self.config), "-O", "check", self.host.name]
        said = subprocess.run(ask, capture_output=True, text=True, check=False).stderr
        found = re.search(r"pid=(\d+)", said)
        assert found, said
        self.masters.append(psutil.Process(int(found[1])))
        return self.masters[-1]

    def fail(self, how: str) -> None:
        master = self.master()
        if how == "dies":
            master.kill()
        elif how == "stops":
            master.suspend()
        else:
            (connection,) = master.net_connections("tcp")
            self.host.run("nft", "-f", "-", given=FORGOTTEN.format(port=connection.laddr.port))


@pytest.fixture
def jump(hosts: Hosts, network: Network, tmp_path: Path) -> Iterator[Jump]:
    h1, _ = hosts(2)
    config, socket = tmp_path / "config", tmp_path / "shared"
    config.write_text(
        "Host h2\n  ProxyJump h1\nHost h1\n  ControlMaster auto\n  ControlPersist 300\n"
        f"  ControlPath {socket}\n{network.ssh_config.read_text()}"
    )
    made = Jump(config, socket, h1)
    yield made
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if each.name() == "ssh" and str(socket) in " ".join(each.cmdline()):
                made.masters.append(each)
    for master in made.masters:
        if master.is_running():
            master.kill()


@pytest.mark.parametrize("how", ["dies", "is cut off"])
def test_a_link_through_a_shared_connection_that_fails_is_restored(
    how: str, jump: Jump, hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    _, h2 = hosts(2)
    script = f"touch {tmp_path}/up; until [ -e {tmp_path}/end ]; do sleep 0.05; done; echo fine"
    ssh = {"config_file": str(jump.config)}
    spec = remote_spec(script, [h2], timeouts={"link": "24s"}, ssh=ssh)
    launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
    wait_until((tmp_path / "up").exists)
    if how == "is cut off":
        for host in hosts(2):
            host.is_changed = True  # the sshd of each waits for the lost connection
    jump.fail(how)
    wait_until(lambda: "is restored" in distrun("events").stdout, what="the link is restored")
    assert "the link to h2 is lost" in distrun("events").stdout
    (tmp_path / "end").touch()
    out, said = launch.communicate(timeout=60)
    assert launch.returncode == 0, said
    assert out == "worker:0 | fine\n"


def test_a_shared_connection_that_hangs_is_named(
    jump: Jump, hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun
) -> None:
    _, h2 = hosts(2)
    ssh = {"config_file": str(jump.config), "connect_timeout": "1s"}
    assert distrun("launch", remote_spec("true", [h2], ssh=ssh)).returncode == 0
    jump.fail("stops")
    done = distrun("launch", remote_spec("true", [h2], ssh=ssh))
    assert done.returncode == 69
    shared = f"ssh shares the connection to h1 among logins, which may hang ({jump.socket})"
    assert shared in done.stderr
    assert f"ssh -O exit -o ControlPath={jump.socket} h1" in done.stderr
