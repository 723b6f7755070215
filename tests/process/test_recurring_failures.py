"""A failure that comes again at the same place, before any progress, ends the restarts."""

from __future__ import annotations

import sys

import pytest

from harness.command import Distrun, recorded_events

TORN = """
import os
import distrun
attempt = os.environ["DISTRUN_ATTEMPT"]
if {steps}:
    distrun.report(step=5 + int(attempt))
raise ValueError("run1/ckpt-3 is torn" + (attempt if {differs} else ""))
"""


@pytest.mark.parametrize(
    ("steps", "differs", "attempts"), [(False, False, 2), (False, True, 3), (True, False, 3)]
)
def test_it_is_restarted_once_unless_it_differs_or_follows_progress(
    steps: bool, differs: bool, attempts: int, distrun: Distrun
) -> None:
    script = distrun.cwd / "train.py"
    script.write_text(TORN.format(steps=steps, differs=differs))
    command = f"exec {sys.executable} train.py"
    restart = {"max": 2, "backoff": "2s", "backoff_max": "2s"}
    job = distrun.detached(command, workers=1, restart=restart)
    assert distrun("wait", job).returncode == 1
    started = [e for e in recorded_events(distrun, job) if e["event"] == "TaskStarted"]
    assert len(started) == attempts
    shown = distrun.status(job)
    assert shown["restarts"] == attempts - 1
    recurs = "the same failure at the same place 2 times in a row"
    assert (recurs in shown["outcome"]["cause"]) is (attempts == 2)
    assert shown["outcome"]["verdict"]["kind"] == "exception"
