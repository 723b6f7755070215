"""Processes that a task leaves at work when it exits 0: its success is qualified."""

from __future__ import annotations

import pytest

from harness.command import Distrun

LEFT = "worker:0 exited 0 with 1 process still at work, which distrun ended: sleep 600"


def test_what_was_still_at_work_is_told_everywhere(distrun: Distrun) -> None:
    done = distrun.launch("sleep 600 & exit 0", workers=1)
    assert done.returncode == 0
    assert LEFT in done.stderr.splitlines()[-1]
    assert LEFT in distrun("status").stdout
    assert LEFT in distrun("wait").stderr
    assert distrun.status()["warnings"] == [LEFT]
    assert distrun("report", "-o", "-").stdout.count(LEFT) == 2  # how it ended; its events


@pytest.mark.parametrize(
    "script",
    [
        "mkfifo $$; cat $$ & exec 3>$$; exit 0",  # as the helpers of multiprocessing end
        "sleep 600 & exit 3",  # a failure needs no qualification
        "sleep 600 & wait",  # it is stopped
    ],
)
def test_what_ends_soon_or_is_stopped_is_not_told(script: str, distrun: Distrun) -> None:
    if script.endswith("wait"):
        distrun("kill", distrun.detached(script))
    else:
        distrun.launch(script)
    assert distrun.status()["warnings"] == []
