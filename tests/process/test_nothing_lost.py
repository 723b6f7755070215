"""What happens to a job whose surroundings fail: stopped processes, clocks, disks, homes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

SOON = {"max": 3, "backoff": "50ms"}


def test_a_job_stopped_for_a_while_goes_on_as_if_nothing_had_been(
    distrun, write_spec, status, victim_of, wait_until
):
    """SIGSTOP to supervisor and agent, longer than the backoff, while a task fails and waits."""
    script = (
        "touch up-$DISTRUN_ATTEMPT; test $DISTRUN_ATTEMPT = 1 && exit 0; "
        "while ! test -e go; do sleep 0.02; done; touch gone; exit 1"
    )
    spec = write_spec(script, workers=1, restart=SOON, timeouts={"start": "1s"})
    launch = distrun.start("launch", spec, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until((distrun.cwd / "up-0").exists, timeout=30)
    wait_until(lambda: status()["state"] == "running")
    ours = [victim_of(who, launch) for who in ("supervisor", "agent", "guard")]
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)
    try:
        (distrun.cwd / "go").touch()
        wait_until((distrun.cwd / "gone").exists, timeout=30)
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() - stopped > 1.2, what="longer than timeouts.start")
        assert not (distrun.cwd / "up-1").exists()
    finally:
        for pid in ours:
            os.kill(pid, signal.SIGCONT)
    assert launch.wait(30) == 0, launch.stderr.read()


def test_a_home_that_vanishes_fails_no_job(distrun, write_spec, distrun_home, wait_until, alive):
    """The job runs on and ends as it would; the launch says that its record is gone."""
    script = "echo $$ > pid-$DISTRUN_TASK; while ! test -e go; do sleep 0.02; done"
    launch = distrun.start(
        "launch", write_spec(script), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(list(distrun.cwd.glob("pid-*"))) == 2, timeout=30)
    shutil.rmtree(distrun_home / "jobs")
    (distrun.cwd / "go").touch()
    _, said = launch.communicate(timeout=30)
    assert launch.returncode == 0, said
    assert "was removed while it ran" in said
    assert "Traceback" not in said


def test_a_home_that_vanishes_before_a_restart_is_the_stated_cause(
    distrun, write_spec, distrun_home, wait_until
):
    script = "touch up-$DISTRUN_TASK; while ! test -e go; do sleep 0.02; done; exit 1"
    launch = distrun.start(
        "launch", write_spec(script, restart=SOON),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2, timeout=30)
    shutil.rmtree(distrun_home / "jobs")
    (distrun.cwd / "go").touch()
    _, said = launch.communicate(timeout=30)
    assert launch.returncode == 69, said
    assert "could not be started" in said
    assert "Traceback" not in said
