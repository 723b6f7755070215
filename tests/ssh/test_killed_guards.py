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
from harness.host_fixtures import Ssh
from harness.network import Host
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
    "guard and standby": (1, 2),
    "all and sshd": (0, 1, 2, 3),
}
LEASE = "12s"


def started(folder: Path, task: str) -> list[str]:
    found = folder / f"started-{task}"
    return found.read_text().split() if found.exists() else []


def sleepers(ssh: Ssh, host: Host) -> list[psutil.Process]:
    found = []
    for each in ssh.processes(host, "sleep"):
        with contextlib.suppress(psutil.NoSuchProcess):  # the others last for 0.05 s
            found += [each] if "1000" in each.cmdline() else []
    return found


def kill_at_once(pids: list[int]) -> None:
    """Kill processes, one right after the other."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("killed", SUBSETS.values(), ids=SUBSETS)
def test_no_attempt_starts_beside_what_a_killed_agent_has_left(
    killed: tuple[int, ...], ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    script = TASK.format(folder=distrun.cwd)
    restart = {"max": 3, "backoff": "100ms"}
    spec = ssh.spec(script, [h1, h2], timeouts={"link": LEASE, "start": "60s"}, restart=restart)
    job = distrun.checked("launch", "-d", spec)
    wait_until(lambda: len(started(distrun.cwd, "worker:1")) == 1, what="the first attempt")
    before = {each.pid for each in sleepers(ssh, h2)}
    (task,) = [each for each in ssh.processes(h2, "sh") if os.getsid(each.pid) == each.pid]
    chain = [each.pid for each in task.parents()[:4]]
    kill_at_once([chain[each] for each in killed])
    wait_until(lambda: len(started(distrun.cwd, "worker:1")) == 2, what="the second attempt")
    assert not any(map(alive, [task.pid, *before]))
    (distrun.cwd / "go").touch()
    distrun.checked("wait", job.stdout.strip())
    assert not (distrun.cwd / "double").exists()
    wait_until(lambda: not ssh.processes(h2), what="the host is clean")
    assert not ssh.processes(h1)
