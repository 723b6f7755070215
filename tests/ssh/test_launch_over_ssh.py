"""Jobs on other hosts: that they run there, and leave nothing there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_a_job_runs_on_two_hosts_and_leaves_nothing_there(
    hosts: Any, remote_spec: Any, distrun: Any, processes_of: Any, wait_until: Any
):
    h1, h2 = hosts(2)
    done = distrun("launch", remote_spec("echo I am $DISTRUN_TASK on $(hostname)", [h1, h2]))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "worker:0 | I am worker:0 on h1",
        "worker:1 | I am worker:1 on h2",
    ]
    again = distrun("logs")
    assert sorted(again.stdout.splitlines()) == sorted(done.stdout.splitlines())
    for host in (h1, h2):
        wait_until(lambda host=host: not processes_of(host))
        left = [path for path in host.home.rglob("*") if not path.is_dir()]
        assert left == []


def test_each_task_gets_addresses_that_the_others_can_dial(
    hosts: Any, remote_spec: Any, distrun: Any, tmp_path: Path
):
    h1, h2 = hosts(2)
    spec = remote_spec(
        'printf "%s\\n" "$TF_CONFIG" "$no_proxy"',
        [h1, h2],
        hosts=["localhost", "h1", "h2"],
        cluster={"worker": 3},
    )
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    config, no_proxy = (line for line in done.stdout.splitlines() if line.startswith("worker:0"))
    cluster = json.loads(config.partition("| ")[2])["cluster"]["worker"]
    machines = [address.rpartition(":")[0] for address in cluster]
    assert machines == [h1._network.gateway, h1.address, h2.address]
    assert {*machines, "h1", "h2"} <= set(no_proxy.partition("| ")[2].split(","))
