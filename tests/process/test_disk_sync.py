"""What must survive the machine is on the disk: plan, verdict and end.

The command line runs with the calls that matter recorded: its supervisor is a fork of it.
"""

from __future__ import annotations

import sys

from harness.command import Distrun

RECORDED = """
import os, sys
calls = sys.argv.pop(1)
sync, write = os.fsync, os.write

def note(text):
    with open(calls, "a") as file:
        print(text, file=file)

def recorded_sync(descriptor):
    sync(descriptor)
    note("synced " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

def recorded_write(descriptor, data):
    for event in ("JobPlanned", "VerdictReached", "JobEnded"):
        if b'"event":"%b"' % event.encode() in bytes(data).replace(b": ", b":"):
            where = os.readlink(f"/proc/self/fd/{descriptor}")
            note(("told " if where.startswith("socket") else "written ") + event)
    return write(descriptor, data)

os.fsync, os.write = recorded_sync, recorded_write
from distrun.__main__ import main
main()
"""


def test_plan_verdict_and_end_are_synced_and_the_end_before_it_is_told(distrun: Distrun) -> None:
    """Each attempt waits for what is synced because of the event before it."""
    calls = distrun.cwd / "calls"
    distrun.argv = (sys.executable, "-c", RECORDED, str(calls))  # type: ignore[assignment]
    wait = "until sed -n '/{}/,$p' calls | grep -q '{}'; do sleep 0.05; done; "
    planned = wait.format("JobPlanned", "synced jobs")
    script = f"if test $DISTRUN_ATTEMPT = 0; then {planned} exit 3; fi; "
    script += wait.format("written VerdictReached", "synced events")
    spec = distrun.write_spec(script, 1, restart={"max": 1, "backoff": "10ms"})
    done = distrun("launch", spec, stdin=None)
    assert done.returncode == 0, done.stderr
    lines = calls.read_text().splitlines()
    (folder,) = (distrun.home / "jobs").iterdir()
    lasting = {"spec.yaml", "spec.json", "plan.json", "events.jsonl", "token", folder.name, "jobs"}
    of_plan = lines[lines.index("written JobPlanned") : lines.index("written VerdictReached")]
    assert lasting == {each.removeprefix("synced ") for each in of_plan if "synced " in each}
    end = lines[lines.index("written JobEnded") :]
    assert end.index("synced events.jsonl") < end.index("told JobEnded")
