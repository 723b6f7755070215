"""Real training continues after the death of a worker that is restarted alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

pytestmark = pytest.mark.e2e
PATIENCE = 240.0
STEPS = 700


def test_a_parameter_servers_worker_comes_back_alone_while_the_chief_trains_on(
    distrun: Distrun, small_mnist: Path
) -> None:
    (distrun.cwd / "job.yaml").write_text(
        "strategy: parameter_server\ncluster: {chief: 1, worker: 2, ps: 1}\n"
        "program: {script: mnist}\nrestart: {max: 1, backoff: 100ms}\n"
    )
    launch = distrun.start(
        *("launch", "job.yaml", "--", "--data-dir", str(small_mnist), "--epochs", "1"),
        *("--steps-per-epoch", str(STEPS), "--checkpoint-dir", "saved", "--checkpoint-every", "10"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def tasks() -> dict[str, Any]:
        if distrun("status").returncode:
            return {}
        return {task["task"]: task for task in distrun.status()["tasks"]}

    def trains() -> bool:
        return int(tasks().get("chief:0", {"progress": {}})["progress"].get("STEP", 0)) >= 20

    wait_until(trains, PATIENCE)
    os.kill(tasks()["worker:1"]["pid"], signal.SIGKILL)
    assert launch.wait(PATIENCE) == 0, distrun("logs").stdout[-4000:]
    attempts = {name: task["attempt"] for name, task in tasks().items()}
    assert attempts == {"chief:0": 0, "worker:0": 0, "worker:1": 1, "ps:0": 0}
    log = distrun("logs", "-t", "worker:1", "--raw").stdout
    addresses = re.findall(r"worker:1 serves at (\S+)", log)
    assert len(addresses) == 2, log
    assert addresses[0] == addresses[1]
    # A step whose worker died is given to another: done at least once, and none is lost.
    last = distrun("logs", "-t", "chief", "--raw").stdout
    told = re.search(rf"{STEPS} steps scheduled, optimizer.iterations (\d+): no update lost", last)
    assert told, last
    assert int(told[1]) >= STEPS
