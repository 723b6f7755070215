"""Whoever is killed on a host, at whatever moment, its tasks end before anything restarts.

Three processes of distrun are on a host: the agent, its guard, and the one that stands by for the
guard in sshd's session. Their parents there are sshd's.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from harness.command import Distrun
from harness.network import Host, Hosts, ProcessesOf, RemoteSpec
from harness.processes import alive
from harness.waiting import wait_until

# Each attempt holds a lock, ignores SIGTERM, and leaves a daemon that hides. Whoever finds the lock
# held says so.
TASK = """
trap '' TERM
exec 9>>{folder}/lock-$DISTRUN_TASK
flock -n 9 || echo $DISTRUN_TASK $DISTRUN_ATTEMPT >> {folder}/double
(exec </dev/null >/dev/null 2>&1; env -i PATH=$PATH setsid sleep 1000 &)
echo $DISTRUN_ATTEMPT >> {folder}/started-$DISTRUN_TASK
until [ -e {folder}/go ]; do sleep 0.05; done
"""
SUBSETS = {
    "guard": (1,),
    "agent and guard": (0, 1),
    "agent and standby": (0, 2),
    "guard and standby": (1, 2),
    "standby, guard and agent": (2, 1, 0),
    "all and sshd": (0, 1, 2, 3),
}
LEASE = "20s"


def started(folder: Path, task: str) -> list[str]:
    found = folder / f"started-{task}"
    return found.read_text().split() if found.exists() else []


def sleepers(processes_of: ProcessesOf, host: Host) -> list[psutil.Process]:
    found = []
    for each in processes_of(host, "sleep"):
        with contextlib.suppress(psutil.NoSuchProcess):  # the others last for 0.05 s
            found += [each] if "1000" in each.cmdline() else []
    return found


def kill_at_once(pids: list[int]) -> None:
    """Kill processes, one right after the other."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("killed", SUBSETS.values(), ids=SUBSETS)
def test_no_attempt_starts_beside_what_a_killed_agent_has_left(
    killed: tuple[int, ...],
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    script = TASK.format(folder=tmp_path)
    restart = {"max": 3, "backoff": "100ms"}
    spec = remote_spec(script, [h1, h2], timeouts={"link": LEASE, "start": "60s"}, restart=restart)
    job = distrun("launch", "-d", spec)
    assert job.returncode == 0, job.stderr
    wait_until(lambda: len(started(tmp_path, "worker:1")) == 1, what="the first attempt")
    before = {each.pid for each in sleepers(processes_of, h2)}
    (task,) = [each for each in processes_of(h2, "sh") if os.getsid(each.pid) == each.pid]
    chain = [each.pid for each in task.parents()[:4]]
    kill_at_once([chain[each] for each in killed])
    wait_until(lambda: len(started(tmp_path, "worker:1")) == 2, what="the second attempt")
    assert not any(map(alive, [task.pid, *before]))
    (tmp_path / "go").touch()
    assert distrun("wait", job.stdout.strip()).returncode == 0
    assert not (tmp_path / "double").exists()
    wait_until(lambda: not processes_of(h2), what="the host is clean")
    assert not processes_of(h1)
