"""`distrun kill` of a job that was lost with hosts: it ends the tasks there, or names the hosts.

The hosts of these tests share this machine's process ids. `kill` runs in a namespace of its own, so
that it has to ask the hosts.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from distrun.agent.linux import processes
from harness.command import Distrun, Status, recorded_events
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.processes import descendants
from harness.waiting import wait_until

RUNS = (
    'touch "{folder}/up-$DISTRUN_TASK"; {exec} sh -c \'trap "" TERM; while :; do sleep 0.1; done\''
)
EMPTIED, WHOLE = "exec env -i PATH=$PATH", "exec"


_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


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


def lost_job(distrun: Distrun, status: Status, spec: Path, folder: Path, count: int) -> str:
    """Launch a job, then kill its supervisor and all its ssh clients, as a crash does."""
    launched = distrun("launch", "-d", "--no-preflight", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: len(list(folder.glob("up-*"))) == count)
    supervisor = status()["supervisor_pid"]
    for pid in [*processes.children(supervisor), supervisor]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status()["state"] == "lost")
    return str(launched.stdout.strip())


@pytest.mark.parametrize("environment", [WHOLE, EMPTIED])
def test_the_tasks_of_a_lost_job_are_ended_on_its_hosts(
    environment: str,
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    found = hosts(2)
    script = RUNS.format(folder=tmp_path, exec=environment)
    spec = remote_spec(script, found, timeouts={"link": "off"})
    job = lost_job(distrun, status, spec, tmp_path, 2)
    assert all(processes_of(each, "sh") for each in found)
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 0, done.stderr
    assert "nothing is left on h1, h2" in done.stderr
    assert not any(map(processes_of, found))
    assert status(job)["state"] == "stopped"
    assert distrun("clean", "--all").stdout.split() == [job]


def test_a_host_that_cannot_be_reached_is_named_until_it_can(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    h1, h2 = hosts(2)
    script = RUNS.format(folder=tmp_path, exec=WHOLE)
    spec = remote_spec(script, [h1, h2], timeouts={"link": "off"})
    job = lost_job(distrun, status, spec, tmp_path, 2)
    h2.cut()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 69
    assert "h2 cannot be reached" in done.stderr
    assert "nothing is left on h1" in done.stderr
    assert not processes_of(h1, "sh")
    assert processes_of(h2, "sh")
    assert status(job)["state"] == "lost"
    kept = elsewhere(distrun, "clean", "--all")
    assert kept.stdout == ""
    assert f"job {job} is kept: its tasks may still run on h2" in kept.stderr
    h2.mend()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 0, done.stderr
    assert not processes_of(h2)
    ended = [each["event"] for each in recorded_events(distrun, job)]
    assert ended.count("HostCleared") == 2
    assert status(job)["state"] == "stopped"


def test_a_host_that_a_supervisor_gave_up_is_named_and_cleared_later(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    (h1,) = hosts(1)
    spec = remote_spec(RUNS.format(folder=tmp_path, exec=WHOLE), [h1], timeouts={"link": "off"})
    launched = distrun("launch", "-d", "--no-preflight", spec)
    assert launched.returncode == 0, launched.stderr
    job = launched.stdout.strip()
    wait_until(lambda: len(list(tmp_path.glob("up-*"))) == 1)
    h1.cut()
    supervisor = status(job)["supervisor_pid"]
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
    assert processes_of(h1, "sh")
    h1.mend()
    done = elsewhere(distrun, "kill", job)
    assert done.returncode == 0, done.stderr
    assert not processes_of(h1)
    assert "may still run" not in distrun("wait", job).stderr
