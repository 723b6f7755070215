"""`distrun kill` of a job that was lost with hosts: it ends the tasks there, or names the hosts.

The hosts of these tests share this machine's process ids. `kill` runs in a namespace of its own, so
that it has to ask the hosts.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from distrun.agent.linux import processes
from harness.command import Distrun, recorded_events
from harness.host_fixtures import Ssh
from harness.processes import descendants
from harness.waiting import wait_until

# The second task has lost the environment by which processes are found.
RUNS = """\
touch "{folder}/up-$DISTRUN_TASK"
[ $DISTRUN_RANK = 0 ] || without="env -i PATH=$PATH"
exec $without sh -c 'trap "" TERM; while :; do sleep 0.1; done'
"""
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def keys(ssh: Ssh) -> dict[str, Any]:
    """Without a lease; hosts that cannot be reached are not waited for long."""
    config = {"config_file": str(ssh.network.ssh_config), "connect_timeout": "3s"}
    return {"timeouts": {"link": "off"}, "ssh": config}


def elsewhere(distrun: Distrun, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the hosts' processes cannot be seen."""
    return subprocess.run(
        [*_NAMESPACE, *distrun.argv, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=distrun.cwd,
    )


def test_the_tasks_of_a_lost_job_are_ended_on_its_hosts_or_the_hosts_are_named(
    ssh: Ssh, distrun: Distrun
) -> None:
    h1, h2 = ssh.hosts(2)
    spec = ssh.spec(RUNS.format(folder=distrun.cwd), [h1, h2], **keys(ssh))
    launched = distrun.checked("launch", "-d", "--no-preflight", spec)
    job = launched.stdout.strip()
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2)
    supervisor = distrun.status()["supervisor_pid"]
    for pid in [*processes.children(supervisor), supervisor]:  # all at once, as in a crash
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: distrun.status()["state"] == "lost")
    h2.cut()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 69
    assert "h2 cannot be reached" in done.stderr
    assert "nothing is left on h1" in done.stderr
    assert not ssh.processes(h1)
    assert ssh.processes(h2, "sh")
    assert distrun.status(job)["state"] == "lost"
    kept = elsewhere(distrun, "clean", "--all")
    assert kept.stdout == ""
    assert f"job {job} is kept: its tasks may still run on h2" in kept.stderr
    h2.mend()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 0, done.stderr
    assert not ssh.processes(h2)
    ended = [each["event"] for each in recorded_events(distrun, job)]
    assert ended.count("HostCleared") == 2
    assert distrun.status(job)["state"] == "stopped"
    assert distrun("clean", "--all").stdout.split() == [job]


def test_a_host_that_a_supervisor_gave_up_is_named_and_cleared_later(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    spec = ssh.spec(RUNS.format(folder=distrun.cwd), [h1], **keys(ssh))
    launched = distrun.checked("launch", "-d", "--no-preflight", spec)
    job = launched.stdout.strip()
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 1)
    h1.cut()
    supervisor = distrun.status(job)["supervisor_pid"]
    for client in descendants(supervisor):
        client.kill()
    wait_until(lambda: any(e["event"] == "LinkLost" for e in recorded_events(distrun, job)))
    words = [*_NAMESPACE, *distrun.argv, "kill", job, "--grace", "0s"]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=distrun.cwd)
    wait_until(lambda: any(e["event"] == "StopRequested" for e in recorded_events(distrun, job)))
    second = elsewhere(distrun, "kill", job)
    said = first.communicate(timeout=120)[1]
    for code, text in ((first.returncode, said), (second.returncode, second.stderr)):
        assert code == 69, text
        assert "h1" in text
    waited = distrun("wait", job)
    assert waited.returncode == 137
    assert "may still run on h1" in waited.stderr
    assert ssh.processes(h1, "sh")
    h1.mend()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 0, done.stderr
    assert not ssh.processes(h1)
    assert "may still run" not in distrun("wait", job).stderr
