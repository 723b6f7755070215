"""A failure that comes again at the same place, before any progress, ends the restarts."""

from __future__ import annotations

import sys

from harness.command import Distrun, recorded_events

TORN = """
import os
for epoch in range({epochs}):
    print(f"epoch {{epoch}} loss 0.5", flush=True)
raise ValueError("run1/ckpt-3 is torn" + (os.environ["DISTRUN_ATTEMPT"] if {differs} else ""))
"""
ATTEMPTS = {"again": (False, 0, 2), "differs": (True, 0, 3), "moves": (False, 2, 3)}
"""Whether the failures differ, how many epochs come before, and how many attempts there are."""


def test_it_is_restarted_once_unless_it_differs(distrun: Distrun) -> None:
    restart = {"max": 2, "backoff": "2s", "backoff_max": "2s"}
    for name, (differs, epochs, _) in ATTEMPTS.items():  # together: they wait for their restarts
        (distrun.cwd / f"{name}.py").write_text(TORN.format(differs=differs, epochs=epochs))
        command = f"exec {sys.executable} {name}.py"
        distrun.detached(command, workers=1, name=name, restart=restart)
    for name, (_, _, attempts) in ATTEMPTS.items():
        assert distrun("wait", name).returncode == 1
        started = [e for e in recorded_events(distrun, name) if e["event"] == "TaskStarted"]
        assert len(started) == attempts, name
        shown = distrun.status(name)
        assert shown["restarts"] == attempts - 1
        recurs = "the same failure at the same place 2 times in a row"
        assert (recurs in shown["outcome"]["cause"]) is (attempts == 2)
        assert shown["outcome"]["verdict"]["kind"] == "exception"
