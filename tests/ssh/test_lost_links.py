"""Cables pulled out: what goes on, what ends, and that no line is lost or doubled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, Status
from harness.network import Hosts, Network, ProcessesOf, RemoteSpec
from harness.waiting import wait_until

# Counts until it is told to end, and leaves in a file how far it came.
COUNTING = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
i=0
until [ -e {folder}/end ]; do i=$((i+1)); echo line $i; sleep 0.02; done
echo $i > {folder}/count-$DISTRUN_TASK
"""

# Short, for its end is waited for; but a host that was only slow for some seconds is none that
# is lost.
LEASE = "10s"
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
# A firewall that no longer knows a connection: neither side hears of the other on it.
FORGOTTEN = """\
table inet forgotten {{
    chain input {{ type filter hook input priority 0; tcp sport {port} drop; }}
    chain output {{ type filter hook output priority 0; tcp dport {port} drop; }}
}}
"""


@pytest.fixture
def link_of(status: Status) -> Callable[[str, str], Any]:
    """Why there is no link to a host of a job, None where there is one."""

    def ask(job: str, host: str) -> Any:
        found = [each for each in status(job)["hosts"] if each["name"] == host]
        return found[0]["link_lost"] if found else None

    return ask


@contextlib.contextmanager
def hanging(pid: int) -> Iterator[None]:
    """Have a process hang as if in the kernel: it executes nothing, and SIGCONT changes nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(_PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0)
    try:
        yield
    finally:
        if libc.ptrace(_PTRACE_DETACH, pid, None, None) != 0:
            os.waitpid(pid, 0)  # it was killed: the tracer is told first


def counted(text: str, task: str) -> list[int]:
    """The numbers of a task's lines, in the order in which they are shown."""
    return [int(n) for n in re.findall(rf"^{task} +\| line (\d+)$", text, re.MULTILINE)]


def test_a_cut_shorter_than_the_lease_loses_no_line_and_doubles_none(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, link_of: Any, tmp_path: Path
) -> None:
    h1, h2 = hosts(2)
    # The link is given up after 8 s of silence; what is left has to do for getting it back.
    spec = remote_spec(COUNTING.format(folder=tmp_path), [h1, h2], timeouts={"link": "24s"})
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    job = launched.stdout.strip()
    wait_until(lambda: "line 20" in distrun("logs", job).stdout)
    h2.cut()
    wait_until(lambda: link_of(job, "h2"), what="the lost link is shown")
    assert "h2: the link has been lost" in distrun("status", job).stdout
    h2.mend()
    wait_until(lambda: link_of(job, "h2") is None, what="the link is back")
    (tmp_path / "end").touch()
    waited = distrun("wait", job)
    assert waited.returncode == 0, waited.stderr
    shown = distrun("logs", job).stdout
    for task in ("worker:0", "worker:1"):
        count = int((tmp_path / f"count-{task}").read_text())
        assert counted(shown, task) == list(range(1, count + 1))
    told = distrun("events", job).stdout
    assert "the link to h2 is lost" in told
    assert "the link to h2 is restored" in told


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


def test_an_agent_that_was_stopped_goes_on(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, processes_of: ProcessesOf
) -> None:
    (h1,) = hosts(1)
    job = distrun("launch", "-d", remote_spec("exec sleep 1000", [h1], timeouts={"link": "60s"}))
    assert job.returncode == 0, job.stderr
    (task,) = processes_of(h1, "sleep")
    agent, guard = task.parents()[:2]
    for each in (agent, guard):
        each.suspend()
    wait_until(lambda: psutil.STATUS_STOPPED not in (agent.status(), guard.status()))
    assert distrun("kill").returncode == 0
    wait_until(lambda: not processes_of(h1))


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
