"""A defect of distrun ends the tasks on every host at once, and is never told as a host's."""

from __future__ import annotations

import subprocess

import pytest

from harness.changed_package import ChangedPackage
from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.waiting import wait_until

SCRIPT = """
trap '' TERM
setsid sleep 1000 &
if [ $DISTRUN_TASK = worker:1 ]; then
    until test -e {go}; do sleep 0.1; done
    exit 3
fi
while :; do sleep 1; done
"""
PLACES = {
    "the supervisor, again and again": ("supervisor/hosts/host", "Host.handle", False),
    "the agent": ("agent/tasks/runner", "TaskRunner.on_child_exit", True),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_defect_ends_the_tasks_on_every_host(place: str, ssh: Ssh, distrun: Distrun) -> None:
    package, go, two = ChangedPackage(distrun.cwd), distrun.cwd / "go", ssh.hosts(2)
    module, target, once = PLACES[place]
    package.plant(module, target, go, once=once)
    distrun.argv = package.argv
    spec = ssh.spec(SCRIPT.format(go=go), two, timeouts={"link": "off"})
    process = distrun.start(
        "launch", spec, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: all(ssh.processes(host, "sleep") for host in two), what="tasks are up")
    job = distrun.status()["job_id"]
    go.touch()
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 70, printed
    wait_until(lambda: not any(map(ssh.processes, two)), timeout=20, what="every host is clean")
    go.unlink(missing_ok=True)
    ended = distrun.status(job)
    assert (ended["state"], ended["exit_code"], ended["origin"]) == ("failed", 70, "distrun")
    log = distrun.home / "jobs" / job / "supervisor.log"
    assert "defect in distrun" in printed
    assert str(log) in printed
    assert "planted" in log.read_text()
    assert "cannot continue" not in distrun("status", job).stdout
