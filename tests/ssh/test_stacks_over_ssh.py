"""`distrun stacks` and `profile` of tasks on other hosts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from distrun.supervisor.stack_collector import find_program
from harness.command import Distrun
from harness.hanging import ACCEPTS, hanging_script
from harness.network import Hosts, RemoteSpec
from harness.values import not_none
from harness.waiting import wait_until


def test_a_deadlock_on_three_hosts_is_found_in_one_command(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, tmp_path: Path
) -> None:
    these = hosts(3)
    launched = distrun("launch", "-d", remote_spec(hanging_script(tmp_path), these))
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: distrun("logs").stdout.count("hangs") == 3, timeout=60)
    for _ in range(2):  # at first, the hosts have to be sent py-spy
        shown = distrun("stacks").stdout.splitlines()
        assert shown[0] == "worker:1: load_batch, hang.py:6"
        assert f"worker:0, worker:2: {ACCEPTS}, called from all_reduce, hang.py:11" in shown
    found = json.loads(distrun("profile", "--seconds", "1", "--json").stdout)
    places = {task["task"]: task["kinds"][0]["place"] for task in found["tasks"]}
    assert places == {
        "worker:0": "all_reduce, hang.py:11",
        "worker:1": "load_batch, hang.py:6",
        "worker:2": "all_reduce, hang.py:11",
    }
    digest = hashlib.sha256(Path(not_none(find_program())).read_bytes()).hexdigest()
    for host in these:
        assert len(list(host.home.rglob(digest))) == 1
    these[2].cut()
    wait_until(lambda: "the link to" in distrun("events").stdout, timeout=60)
    shown = distrun("stacks").stdout.splitlines()
    assert shown[0].startswith(("worker:0: ", "worker:1: "))
    assert shown[-1] == f"{these[2].name}: its link is lost"
    these[2].mend()
    assert distrun("kill").returncode == 0
