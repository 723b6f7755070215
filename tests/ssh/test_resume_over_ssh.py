"""Resumed jobs on other hosts: nothing of the earlier attempts lives on, and no output is mixed."""

from __future__ import annotations

import re

import psutil

from harness.command import Distrun
from harness.host_fixtures import Ssh
from harness.processes import alive
from harness.waiting import wait_until

HIDING = """\
[ -e {folder}/end ] && exit
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
touch {folder}/up; while :; do sleep 1; done
"""


def lost(distrun: Distrun) -> bool:
    return bool(distrun.status()["state"] == "lost")


def test_orphans_of_a_killed_agent_are_found_by_the_id_of_their_job(
    ssh: Ssh, distrun: Distrun
) -> None:
    (h1,) = ssh.hosts(1)
    launched = distrun.checked("launch", "-d", ssh.spec(HIDING.format(folder=distrun.cwd), [h1]))
    wait_until((distrun.cwd / "up").exists)
    task = ssh.processes(h1, "sh")[0]
    killed = [psutil.Process(distrun.status()["supervisor_pid"]), *task.parents()[2::-1]]
    for each in killed:  # the agent last
        each.suspend()
    orphans = ssh.processes(h1, "sh")
    for each in killed:
        each.kill()
    wait_until(lambda: lost(distrun))
    assert any(map(alive, orphans))
    (distrun.cwd / "end").touch()
    distrun.checked("resume", launched.stdout.strip())
    assert not any(map(alive, orphans))


def test_output_after_an_unfinished_line_is_that_of_its_own_attempt(
    ssh: Ssh, distrun: Distrun
) -> None:
    """The former attempt's last words have no newline, as those of a progress bar."""
    (h1,) = ssh.hosts(1)
    error = 'File "old.py", line 7, in <module>\\nValueError: an old error'
    words = f"Traceback (most recent call last):\\n  {error}\\ncaught: going on"
    script = (
        f"[ -e {distrun.cwd}/end ] && exit 1; printf '{words}'; touch {distrun.cwd}/up; sleep 600"
    )
    launched = distrun("launch", "-d", ssh.spec(script, [h1], timeouts={"link": "8s"}))
    wait_until((distrun.cwd / "up").exists)
    job = launched.stdout.strip()
    log = distrun.home / "jobs" / job / "logs" / "worker-0.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("going on"))
    psutil.Process(distrun.status()["supervisor_pid"]).kill()
    wait_until(lambda: lost(distrun))
    (distrun.cwd / "end").touch()
    done = distrun("resume", job)
    assert done.returncode == 1
    assert "old error" not in done.stderr
    assert distrun.status()["outcome"]["verdict"]["kind"] == "exit"
    assert re.search(r"going on\n--- attempt 1, .*\n\Z", log.read_text())
