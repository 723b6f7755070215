"""Why a job failed may take long to find out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from harness.command import Distrun
from harness.waiting import wait_until

# The analysis waits until somebody opens a named pipe. The supervisor is a fork of this process.
WAITS = """
import sys
gate, seconds = (sys.argv.pop(1) for _ in range(2))
from distrun.verdict import analysis
original = analysis.analyze

def wait(*args):
    open(gate).close()
    return original(*args)

analysis.analyze = wait
from distrun.supervisor.hosts import inquiry
inquiry._SECONDS = float(seconds)
from distrun.__main__ import main
main()
"""
FAILS = "if [ $DISTRUN_ATTEMPT = 0 ]; then echo at once; exit 3; fi; exec sleep 600"


def verdicts(distrun: Distrun) -> list[dict[str, Any]]:
    lines = map(json.loads, distrun("events", "--json").stdout.splitlines())
    return [each["verdict"] for each in lines if each["event"] == "VerdictReached"]


def launch(distrun: Distrun, seconds: float, **keys: Any) -> subprocess.Popen[str]:
    """Start a launch whose analysis waits for the pipe, at most so many seconds."""
    gate = distrun.cwd / "gate"
    os.mkfifo(gate)
    program = (sys.executable, "-c", WAITS, str(gate), str(seconds))
    usual, distrun.argv = distrun.argv, program  # type: ignore[assignment]
    spec = distrun.write_spec(FAILS, workers=1, **keys)
    process = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
    distrun.argv = usual
    return process


def test_a_restart_does_not_wait_for_the_analysis(distrun: Distrun) -> None:
    launch(distrun, 600.0, restart={"max": 1, "backoff": "10ms"})
    wait_until(lambda: distrun("events", "--json").stdout.count('"TaskStarted"') == 2, timeout=20)
    assert verdicts(distrun) == []
    (distrun.cwd / "gate").write_text("")
    wait_until(lambda: len(verdicts(distrun)) == 1, timeout=20)
    assert verdicts(distrun)[0]["task"] == "worker:0"
    assert distrun("kill").returncode == 0


def test_a_jobs_end_waits_for_the_analysis_for_some_time(distrun: Distrun) -> None:
    launched = launch(distrun, 1.0)
    said = launched.communicate(timeout=30)[1]
    assert launched.returncode == 3, said
    (verdict,) = verdicts(distrun)
    assert (verdict["task"], verdict["kind"]) == ("worker:0", "other")
