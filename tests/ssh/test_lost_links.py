"""Cables pulled out: what goes on, what ends, and that no line is lost or doubled."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

COUNTING = """\
exec 9>{lock}
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
i=0
while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; sleep {pause}; done
"""

# A firewall that no longer knows a connection: neither side hears of the other on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


@pytest.fixture
def link_of(status: Any) -> Callable[[str, str], Any]:
    """Why there is no link to a host of a job, None where there is one."""

    def ask(job: str, host: str) -> Any:
        found = [each for each in status(job)["hosts"] if each["name"] == host]
        return found[0]["link_lost"] if found else None

    return ask


def counted(text: str, task: str) -> list[int]:
    """The numbers of a task's lines, in the order in which they are shown."""
    return [int(n) for n in re.findall(rf"^{task} +\| line (\d+)$", text, re.MULTILINE)]


def test_a_cut_shorter_than_the_lease_loses_no_line_and_doubles_none(
    hosts: Any, remote_spec: Any, distrun: Any, wait_until: Any, link_of: Any, tmp_path: Path
):
    h1, h2 = hosts(2)
    script = COUNTING.format(lock=f"{tmp_path}/$DISTRUN_TASK", count=300, pause=0.02)
    spec = remote_spec(script, [h1, h2], timeouts={"link": "16s"})
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    job = launched.stdout.strip()
    wait_until(lambda: "line 20" in distrun("logs", job).stdout)
    h2.cut()
    wait_until(lambda: link_of(job, "h2"), what="the lost link is shown")
    assert "h2: the link is lost" in distrun("status", job).stdout
    h2.mend()
    wait_until(lambda: link_of(job, "h2") is None, what="the link is back")
    waited = distrun("wait", job)
    assert waited.returncode == 0, waited.stderr
    shown = distrun("logs", job).stdout
    assert counted(shown, "worker:0") == list(range(1, 301))
    assert counted(shown, "worker:1") == list(range(1, 301))
    told = distrun("events", job).stdout
    assert "the link to h2 is lost" in told
    assert "the link to h2 is there again" in told


def test_a_shared_connection_that_has_died_is_not_the_only_way_back(
    hosts: Any, network: Any, remote_spec: Any, distrun: Any, wait_until: Any, tmp_path: Path
):
    (h1,) = hosts(1)
    shared = tmp_path / "shared"
    ssh = {"config_file": str(network.ssh_config), "options": {"ControlPath": str(shared)}}
    master = subprocess.Popen(
        ["ssh", "-F", network.ssh_config, "-N", "-oControlMaster=yes", f"-oControlPath={shared}",
         h1.name]
    )  # fmt: skip
    try:
        wait_until(shared.exists, what="the connection is shared")
        spec = remote_spec(
            f"echo $$ > {tmp_path}/up; read end < {tmp_path}/end; echo $end", [h1],
            timeouts={"link": "8s"}, ssh=ssh,
        )  # fmt: skip
        os.mkfifo(tmp_path / "end")
        launch = distrun.start("launch", spec, stdout=-1, stderr=-1, text=True)
        wait_until((tmp_path / "up").exists)
        # As where a router on the way has forgotten it: nothing of it arrives, new ones do.
        (connection,) = psutil.Process(master.pid).net_connections("tcp")
        h1.is_changed = True
        h1.run("nft", "-f", "-", given=FORGOTTEN.format(port=connection.laddr.port))
        wait_until(lambda: "is there again" in distrun("events").stdout, 8)
        (tmp_path / "end").write_text("fine\n")
        out, said = launch.communicate(timeout=20)
    finally:
        master.kill()
        master.wait()
    assert launch.returncode == 0, said
    assert out == "worker:0 | fine\n"


def lost_at(distrun: Any) -> float:
    """When the newest job took a host for lost."""
    record = map(json.loads, distrun("events", "--json").stdout.splitlines())
    return next(event["at"] for event in record if event["event"] == "HostLost")


def test_a_host_cut_off_for_good_is_the_cause_and_its_tasks_end_by_themselves(
    hosts: Any, remote_spec: Any, distrun: Any, wait_until: Any, processes_of: Any, tmp_path: Path
):
    h1, h2 = hosts(2)
    script = COUNTING.format(lock=f"{tmp_path}/$DISTRUN_TASK", count=10000, pause=0.05)
    job = distrun("launch", "-d", remote_spec(script, [h1, h2], timeouts={"link": "4s"}))
    assert job.returncode == 0, job.stderr
    assert processes_of(h2)
    began = time.time()
    h2.cut()
    waited = distrun("wait", job.stdout.strip())
    assert lost_at(distrun) - began < 4 + 3
    # When the launching side takes the host for lost, its tasks have ended: both can be seen.
    assert not processes_of(h2, "sh")
    assert waited.returncode == 69
    assert "h2" in waited.stderr + distrun("status", job.stdout.strip()).stdout
    wait_until(lambda: not processes_of(h1))
    wait_until(lambda: not processes_of(h2))


def test_a_host_that_is_switched_off_is_noticed_and_named(
    hosts: Any, remote_spec: Any, distrun: Any
):
    h1, h2 = hosts(2)
    process = distrun.start(
        "launch", remote_spec("sleep 1000", [h1, h2], timeouts={"link": "3s"}),
        stderr=-1, stdout=-1, text=True,
    )  # fmt: skip
    assert "2 tasks" in process.stderr.readline()
    began = time.time()
    h2.power_off()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 69
    assert lost_at(distrun) - began < 3 + 3
    assert "h2 was lost" in said


def test_without_a_lease_tasks_wait_and_a_second_kill_does_not(
    hosts: Any, remote_spec: Any, distrun: Any, wait_until: Any, processes_of: Any
):
    (h1,) = hosts(1)
    process = distrun.start(
        "launch", remote_spec("sleep 1000", [h1], timeouts={"link": "off"}), stderr=-1, text=True
    )
    assert "1 task" in process.stderr.readline()
    wait_until(lambda: processes_of(h1, "sleep"))
    h1.cut()
    # With no lease silence is noticed late; the end of ssh at once.
    client = next(
        each
        for each in psutil.Process(process.pid).children(recursive=True)
        if each.name() == "ssh"
    )
    client.kill()
    assert "the link to h1 is lost" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "the logs of h1's tasks are not all here" in said
    assert processes_of(h1, "sleep")
