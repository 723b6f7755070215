"""Cables pulled out: what goes on, what ends, and that no line is lost or doubled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from harness.command import Distrun
from harness.network import Hosts, Network, ProcessesOf, RemoteSpec
from harness.tracing import hanging
from harness.waiting import wait_until

# Short, for its end is waited for; but a host that was only slow for some seconds is none that
# is lost.
LEASE = "10s"
# A firewall that no longer knows a connection: neither side hears of the other on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


def test_a_shared_connection_that_has_died_is_not_the_only_way_back(
    hosts: Hosts, network: Network, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    (h1,) = hosts(1)
    shared = tmp_path / "shared"
    ssh = {"config_file": str(network.ssh_config), "options": {"ControlPath": str(shared)}}
    master = subprocess.Popen(
        ["ssh", "-F", network.ssh_config, "-N", "-oControlMaster=yes", f"-oControlPath={shared}",
         h1.name]
    )  # fmt: skip
    try:
        wait_until(shared.exists, what="the connection is shared")
        script = f"touch {tmp_path}/up; until [ -e {tmp_path}/end ]; do sleep 0.05; done; echo fine"
        spec = remote_spec(script, [h1], timeouts={"link": "24s"}, ssh=ssh)
        launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
        wait_until((tmp_path / "up").exists)
        # As where a router on the way has forgotten it: nothing of it arrives, new ones do.
        (connection,) = psutil.Process(master.pid).net_connections("tcp")
        h1.is_changed = True
        h1.run("nft", "-f", "-", given=FORGOTTEN.format(port=connection.laddr.port))
        wait_until(lambda: "is restored" in distrun("events").stdout)
        (tmp_path / "end").touch()
        out, said = launch.communicate(timeout=60)
    finally:
        master.kill()
        master.wait()
    assert launch.returncode == 0, said
    assert out == "worker:0 | fine\n"


def test_a_guard_ends_the_tasks_of_an_agent_that_hangs_when_its_lease_expires(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> None:
    h1, h2 = hosts(2)
    spec = remote_spec("setsid sleep 1000 & exec sleep 1000", [h1, h2], timeouts={"link": LEASE})
    job = distrun("launch", "-d", spec)
    assert job.returncode == 0, job.stderr
    wait_until(lambda: len(processes_of(h2, "sleep")) == 2)
    task = processes_of(h2, "sleep")[0]
    agent = next(each for each in task.parents() if each.name().startswith("python"))
    with hanging(agent.pid):
        h2.cut()
        waited = distrun("wait", job.stdout.strip())
        assert waited.returncode == 69
        # The supervisor does not start a replacement before this.
        assert not processes_of(h2, "sleep")
    wait_until(lambda: not processes_of(h2))
