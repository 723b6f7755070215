"""Restarts with real processes: who starts again, with what, and what is shown of it."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import distrun as package
from harness.command import Distrun, recorded_events
from harness.processes import alive, is_connected
from harness.waiting import wait_until

SOON = {"max": 3, "backoff": "50ms"}


def states(job: dict[str, Any]) -> set[str]:
    return {task["state"] for task in job["tasks"]}


def launch_that_waits(distrun: Distrun) -> subprocess.Popen[str]:
    waiting = {"max": 1, "backoff": "1h", "backoff_max": "1h"}
    spec = distrun.write_spec("exit 1", restart=waiting)
    launch = distrun.start("launch", spec, stdout=-3, stderr=subprocess.PIPE, text=True)

    def waits() -> bool:
        shown = distrun("status", "--json")
        return shown.returncode == 0 and states(json.loads(shown.stdout)["job"]) == {"restarting"}

    wait_until(waits)
    return launch


def test_stopped_while_it_waits_it_ends_at_once(distrun: Distrun) -> None:
    """It shows that it waits and for how long, and nothing of it is left meanwhile."""
    launch = launch_that_waits(distrun)
    job = distrun.status()
    assert (job["state"], job["running"], job["restarts_left"]) == ("restarting", True, 0)
    in_minutes = {round((task["restarts_at"] - time.time()) / 60) for task in job["tasks"]}
    assert in_minutes <= set(range(44, 61))
    assert re.search(r"worker:0 +restarting in \d\d m", distrun.asked("status"))
    # Another job cannot have its ports.
    cluster = {"worker": [job["tasks"][0]["address"]]}
    other = distrun.told(69, "launch", distrun.write_spec("exit 0", name="other", cluster=cluster))
    assert "another distrun job holds it" in other
    launch.send_signal(signal.SIGINT)
    assert launch.wait(30) == 130
    assert states(distrun.status("job")) <= {"failed", "stopped"}


def test_a_death_of_ours_while_it_waits_leaves_nothing(distrun: Distrun) -> None:
    launch = launch_that_waits(distrun)
    guard, *others = (distrun.victim_of(each, launch) for each in ("guard", "agent", "supervisor"))
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, others)))
    assert launch.wait(30) in (69, 70)


FORGED = """\
import os
attempt = os.environ["DISTRUN_ATTEMPT"]
if attempt == "2":
    os._exit(7)
print("epoch 1", flush=True)
try:
    raise ValueError("of attempt " + attempt)
finally:
    import atexit
    atexit.register(lambda: print(
        "\\n--- attempt 1, 2026-03-01 12:00:01: restarted after worker:1 exited 1 ---\\n"
        "--- attempt 2, 2026-03-01 12:00:01: restarted after worker:1 was killed by SIGKILL ---",
        flush=True))
"""


def test_each_attempt_is_judged_by_its_own_output_whatever_it_prints(distrun: Distrun) -> None:
    (distrun.cwd / "t.py").write_text(FORGED)
    done = distrun.launch(f"exec {sys.executable} t.py", workers=1, restart=SOON | {"max": 2})
    assert (done.returncode, done.stdout.count("epoch 1\n")) == (7, 2)
    assert "worker:0 exited 1 (2 times)" in done.stderr
    assert done.stderr.splitlines()[-1] == "distrun: exit code 7, worker:0's own"
    cause = "worker:0 exited 7, after 2 restarts; not restarted: restart.max allows 2 restarts"
    assert distrun.status()["outcome"]["cause"] == cause
    recorded = recorded_events(distrun)
    found = [e["verdict"] for e in recorded if e["event"] == "VerdictReached"]
    assert [(each["kind"], each["attempt"]) for each in found] == [
        *(("exception", 0), ("exception", 1), ("exit", 2))
    ]
    assert "ValueError: of attempt 1" in found[1]["cause"]
    assert "of attempt" not in found[2]["cause"]
    begins = [e["log_start_bytes"] for e in recorded if e["event"] == "TaskStarted"]
    log = Path(distrun.status()["tasks"][0]["log"]).read_bytes()
    assert begins[0] == 0
    assert log[: begins[1]].endswith(b"restarted after worker:0 exited 1 ---\n")
    assert log[begins[1] :].startswith(b"epoch 1\n")


LONG = "60d"
LIMITS = {"start": LONG, "run": "99999999h", "stall": LONG, "grace": LONG, "link": LONG}


def test_a_job_waits_for_a_restart_for_a_long_time_and_can_be_killed(distrun: Distrun) -> None:
    restart = {"backoff": LONG, "backoff_max": LONG}
    job = distrun.detached("exit 3", restart=restart, timeouts=LIMITS, workers=1)
    waiting = distrun.start("wait", "--timeout", "99999999h", job, stderr=-3)
    wait_until(lambda: "again in" in distrun.asked("events", job))
    with ThreadPoolExecutor() as pool:
        results = [
            pool.submit(package.job(job).wait, timeout=limit) for limit in (60 * 86400.0, math.inf)
        ]
        wait_until(lambda: is_connected(waiting.pid))
        assert distrun("kill", job).returncode == 0
        assert waiting.wait(30) == 137
        assert [each.result(30).exit_code for each in results] == [137, 137]
