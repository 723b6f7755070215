"""`distrun profile` of TensorFlow, whose threads tell nobody for whom a step waits."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
MARK = f"<!-- run by: tests/e2e/{Path(__file__).name} -->\n```python\n"
TRAIN = PAGE.read_text().partition(MARK)[2].partition("```")[0]
SLEEPS = TRAIN.partition("time.sleep")[0].count("\n") + 1


def test_a_slow_generator_is_what_the_others_wait_for(distrun: Distrun) -> None:
    (distrun.cwd / "slow.py").write_text(TRAIN)
    distrun.detached(f"exec {shlex.quote(sys.executable)} slow.py", workers=2)
    wait_until(lambda: distrun("logs").stdout.count("Epoch 1/") == 2, timeout=240)
    found = json.loads(distrun("profile", "--seconds", "4", "--json").stdout)
    shares = {
        task["task"]: {each["kind"]: each["share"] for each in task["kinds"]}
        for task in found["tasks"]
    }
    assert shares["worker:0"]["waiting for others"] > 0.4
    assert shares["worker:1"]["waiting for input"] > 0.4
    assert found["straggler"]["task"] == "worker:1"
    places = [each["place"] for each in found["straggler"]["reasons"]]
    assert places[0] == f"batches, slow.py:{SLEEPS}"
    distrun.checked("kill")
