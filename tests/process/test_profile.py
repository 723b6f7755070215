"""`distrun profile` of programs whose frames look like TensorFlow's."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from distrun.job import stacks
from harness.command import Distrun
from harness.json_page import PAGE, Reader
from harness.steps import training_program
from harness.values import not_none
from harness.waiting import wait_until

TRAIN = """\
def save_model():
    time.sleep(0.1)
while True:
    execute.quick_execute()
    if os.environ["DISTRUN_TASK"] == "worker:1":
        save_model()
"""


def test_the_task_that_the_others_wait_for_is_named_with_its_line(
    distrun: Distrun, tmp_path: Path
) -> None:
    distrun.detached(training_program(tmp_path, TRAIN), workers=2)
    wait_until(lambda: distrun.asked("logs").count("trains") == 2, timeout=60)
    file = tmp_path / "job.json"
    done = distrun("profile", "--seconds", "2", "--json", "-o", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    reader = Reader(PAGE.read_text())
    reader.check("profile", found)
    assert reader.faults == []
    assert not reader.missing("profile", found)
    shares = {
        task["task"]: {each["kind"]: each["share"] for each in task["kinds"]}
        for task in found["tasks"]
    }
    assert shares["worker:0"]["waiting for others"] > 0.4
    assert shares["worker:1"]["saving"] > 0.4
    assert (found["straggler"]["task"], found["straggler"]["gain"] > 0.3) == ("worker:1", True)
    reason = found["straggler"]["reasons"][0]
    assert (reason["kind"], reason["place"]) == ("saving", "save_model, train.py:6")
    profiles = json.loads(file.read_text())["profiles"]
    assert {"worker:0", "worker:1"} <= {each["name"] for each in profiles}

    page = tmp_path / "page.html"
    assert distrun("report", "-o", str(page)).returncode == 0
    drawn = r'aria-label="Flame graph of (\S+)">(.*?)</details>'
    graphs = dict(re.findall(drawn, page.read_text(), re.DOTALL))
    assert list(graphs) == ["worker:0", "worker:1"]
    saves = r"save_model \(train.py:6\): ([\d.]+)%"
    assert re.search(saves, graphs["worker:0"]) is None
    assert float(not_none(re.search(saves, graphs["worker:1"]))[1]) > 40
    (Path(distrun.status()["folder"]) / "profile.json").write_text('{"profiles": [{"name": 1}]}')
    assert distrun("report", "-o", str(page)).returncode == 0
    assert "Flame graph" not in page.read_text()

    folder = tmp_path / "bin"  # an interpreter beside which there is no py-spy
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    site = [str(Path(stacks.__file__).parents[2]), *(p for p in sys.path if "site-packages" in p)]
    env = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(site)}
    distrun.argv = (str(folder / "python3"), "-m", "distrun")
    done = distrun("profile", "--seconds", "1", env=env)
    distrun.argv = (sys.executable, "-m", "distrun")
    assert done.returncode == 0, done.stderr
    assert {"busy", "idle"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}
    assert "-m pip install py-spy" in " ".join(done.stdout.split())
    assert {task["state"] for task in distrun.status()["tasks"]} == {"running"}
    assert distrun("kill").returncode == 0
    assert distrun("profile").returncode == 2
