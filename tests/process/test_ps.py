"""`ps -a`: why each job ended, in a word, and the progress that it reported last."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from harness.command import Distrun
from harness.processes import survivors
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

REPORTS = """\
import os, socket, sys, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.sendto(b"STEP=120 EPOCH=3 LOSS=0.164", "\\0" + os.environ["DISTRUN_NOTIFY"][1:])
exec(sys.argv[1])
"""


def launch(distrun: Distrun, folder: Path, name: str, then: str) -> str:
    (folder / "reports.py").write_text(REPORTS)
    program = {"script": "reports.py", "args": [then]}
    spec = folder / f"{name}.yaml"
    spec.write_text(yaml.safe_dump({"name": name, "strategy": "default", "program": program}))
    done = distrun("launch", "-d", spec)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.mark.parametrize("columns", [80, 120])
def test_a_cause_in_a_word_and_the_last_metric(
    distrun: Distrun, terminal: OpenTerminal, columns: int
) -> None:
    good = launch(distrun, distrun.cwd, "good", "pass")
    bad = launch(distrun, distrun.cwd, "bad", "import no_such_module")
    distrun("wait", good, bad)

    def has_reported() -> bool:
        return "LOSS" in distrun.status()["tasks"][0]["progress"]

    killed = launch(distrun, distrun.cwd, "killed", "time.sleep(600)")
    wait_until(has_reported)
    distrun("kill", killed)
    lost = launch(distrun, distrun.cwd, "lost", "time.sleep(600)")
    os.kill(distrun.status()["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not survivors(lost), timeout=30)
    running = launch(distrun, distrun.cwd, "running", "time.sleep(600)")
    wait_until(has_reported)
    rows = {
        each["job_id"]: each for each in json.loads(distrun("ps", "-a", "--json").stdout)["jobs"]
    }
    causes = {job_id: row["cause"] for job_id, row in rows.items()}
    assert causes == {
        good: None,
        bad: "import_error",
        killed: "kill",
        lost: "supervisor_died",
        running: None,
    }
    for job_id in (good, bad, killed, running):
        assert rows[job_id]["progress"]["LOSS"] == 0.164, job_id
    window = terminal("ps", "-a", columns=columns)
    wait_until(window.ended)
    lines = window.text().splitlines()
    assert max(map(len, lines)) <= columns
    [line] = [line for line in lines if line.startswith(bad)]
    assert "import_error" in line
    assert "epoch 3 step 120 loss 0.164" in line
    distrun("kill")
