"""Resumed jobs on other hosts: nothing of the earlier attempts lives on, and no line is lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil

from harness.command import Distrun, Status
from harness.network import Hosts, ProcessesOf, RemoteSpec
from harness.processes import alive
from harness.waiting import wait_until

# The folder is on all hosts: these are namespaces of one machine.
COUNTING = """\
exec 9>{folder}/lock-$DISTRUN_TASK
flock -n 9 || {{ echo TWO AT ONCE; exit 9; }}
[ -e {folder}/end ] && exit 0
i=0
while :; do i=$((i+1)); echo attempt $DISTRUN_ATTEMPT line $i
echo $i >> {folder}/count-$DISTRUN_TASK-$DISTRUN_ATTEMPT; sleep 0.02; done
"""


def lose_supervisor(distrun: Distrun, status: Status) -> None:
    """Kill the job's supervisor, as the death of the launching machine does."""
    pid = status()["supervisor_pid"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: status()["state"] == "lost")


def launch(distrun: Distrun, spec: Path, folder: Path, count: int) -> str:
    launched = distrun("launch", "-d", spec)
    assert launched.returncode == 0, launched.stderr
    wait_until(lambda: len(list(folder.glob("count-*-0"))) == count, what="all tasks count")
    return str(launched.stdout.strip())


def test_a_host_that_is_assumed_dead_is_not_waited_for(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    h1, h2 = hosts(2)
    keys = {"timeouts": {"link": "off"}}
    job = launch(
        distrun, remote_spec(COUNTING.format(folder=tmp_path), [h1, h2], **keys), tmp_path, 2
    )
    h2.power_off()
    lose_supervisor(distrun, status)
    (tmp_path / "end").touch()
    refused = distrun("resume", job, "--assume-dead", "h7")
    assert refused.returncode == 2
    assert "something may be left on h1, h2" in refused.stderr
    done = distrun("resume", job, "--assume-dead", "h2", "--set", "hosts=[h1]")
    assert done.returncode == 0, done.stderr
    assert "warning: it is not verified that nothing of the job runs on h2" in done.stderr


def test_orphans_of_a_killed_agent_are_found_by_the_id_of_their_job(
    hosts: Hosts,
    remote_spec: RemoteSpec,
    distrun: Distrun,
    status: Status,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    (h1,) = hosts(1)
    script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & " + COUNTING.format(
        folder=tmp_path
    )
    job = launch(distrun, remote_spec(script, [h1]), tmp_path, 1)
    task = processes_of(h1, "sh")[0]
    agent, guard, front = task.parents()[:3]
    supervisor = psutil.Process(status()["supervisor_pid"])
    for each in (supervisor, front, guard, agent):
        each.suspend()
    orphans = processes_of(h1, "sh")
    for each in (supervisor, front, guard, agent):
        each.kill()
    wait_until(lambda: status()["state"] == "lost")
    assert any(map(alive, orphans))
    (tmp_path / "end").touch()
    done = distrun("resume", job)
    assert done.returncode == 0, done.stderr
    assert not any(map(alive, orphans))


def test_output_after_an_unfinished_line_is_that_of_its_own_attempt(
    hosts: Hosts, remote_spec: RemoteSpec, distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    """The former attempt's last words have no newline, as those of a progress bar."""
    (h1,) = hosts(1)
    error = 'File "old.py", line 7, in <module>\\nValueError: an old error'
    words = f"Traceback (most recent call last):\\n  {error}\\ncaught: going on"
    script = f"[ -e {tmp_path}/end ] && exit 1; printf '{words}'; touch {tmp_path}/up; sleep 600"
    launched = distrun("launch", "-d", remote_spec(script, [h1], timeouts={"link": "8s"}))
    wait_until((tmp_path / "up").exists)
    job = launched.stdout.strip()
    log = distrun.home / "jobs" / job / "logs" / "worker-0.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("going on"))
    lose_supervisor(distrun, status)
    (tmp_path / "end").touch()
    done = distrun("resume", job)
    assert done.returncode == 1
    assert "old error" not in done.stderr
    assert status()["outcome"]["verdict"]["kind"] == "exit"
    assert re.search(r"going on\n--- attempt 1, .*\n\Z", log.read_text())
