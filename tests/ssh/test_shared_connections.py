"""A connection that the user's ssh shares among logins dies or hangs: a jump host's or a host's."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.network import Host
from harness.waiting import wait_until

# The firewall of the host no longer knows a connection: neither side receives on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


class Shared:
    """The shared connection to a host: its configuration and its master."""

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


@pytest.fixture(params=["h1"])
def shared(request: pytest.FixtureRequest, ssh: Ssh, distrun: Distrun) -> Iterator[Shared]:
    """The connection to the jump host h1 on the way to h2, or to h2 itself."""
    (host,) = [each for each in ssh.hosts(2) if each.name == request.param]
    config, socket = distrun.cwd / "config", distrun.cwd / "shared"
    way = "Host h2\n  ProxyJump h1\n" if host.name == "h1" else ""
    config.write_text(
        f"{way}Host {host.name}\n  ControlMaster auto\n  ControlPersist 300\n"
        f"  ControlPath {socket}\n{ssh.network.ssh_config.read_text()}"
    )
    if host.name == "h2":  # distrun makes no connection that others share
        shares = ["ssh", "-F", str(config), "-S", str(socket), "-fN", host.name]
        subprocess.run(shares, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = Shared(config, socket, host)
    yield made
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if each.name() == "ssh" and str(socket) in " ".join(each.cmdline()):
                made.masters.append(each)
    for master in made.masters:
        if master.is_running():
            master.kill()


@pytest.mark.parametrize(
    ("shared", "how"), [("h1", "dies"), ("h1", "is cut off"), ("h2", "is cut off")],
    indirect=["shared"],
)  # fmt: skip
def test_a_link_through_a_shared_connection_that_fails_is_restored(
    how: str, shared: Shared, ssh: Ssh, distrun: Distrun
) -> None:
    _, h2 = ssh.hosts(2)
    script = (
        f"touch {distrun.cwd}/up; until [ -e {distrun.cwd}/end ]; do sleep 0.05; done; echo fine"
    )
    config = {"config_file": str(shared.config)}
    spec = ssh.spec(script, [h2], timeouts={"link": "24s"}, ssh=config)
    launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
    wait_until((distrun.cwd / "up").exists)
    if how == "is cut off":
        for host in ssh.hosts(2):
            host.is_changed = True  # the sshd of each waits for the lost connection
    shared.fail(how)
    wait_until(lambda: "is restored" in distrun("events").stdout, what="the link is restored")
    assert "the link to h2 is lost" in distrun("events").stdout
    (distrun.cwd / "end").touch()
    out, said = launch.communicate(timeout=60)
    assert launch.returncode == 0, said
    assert out == "worker:0 | fine\n"


def test_a_shared_connection_that_hangs_is_named(
    shared: Shared, ssh: Ssh, distrun: Distrun
) -> None:
    _, h2 = ssh.hosts(2)
    config = {"config_file": str(shared.config), "connect_timeout": "1s"}
    distrun.checked("launch", ssh.spec("true", [h2], ssh=config))
    shared.fail("stops")  # it has outlived the job
    done = distrun("launch", ssh.spec("true", [h2], ssh=config))
    assert done.returncode == 69
    told = f"ssh shares the connection to h1 among logins, which may hang ({shared.socket})"
    assert told in done.stderr
    assert f"ssh -O exit -o ControlPath={shared.socket} h1" in done.stderr
