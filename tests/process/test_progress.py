"""The progress that a task reports, up to its last report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

SCRIPT = """\
import os, socket
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
address = "\\0" + os.environ["DISTRUN_NOTIFY"][1:]
speak.sendto(b"STEP=7 EPOCH=1", address)
speak.sendto(b"STEP=8", address)
"""
SPEC = """\
strategy: default
cluster: {worker: 1}
program: {script: speak.py}
"""
FLOOD = """\
import os, socket, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
end = time.monotonic() + 2
while time.monotonic() < end:
    speak.send(b"STEP=1")
"""


def test_a_report_just_before_the_exit_is_kept(distrun: Distrun) -> None:
    (distrun.cwd / "speak.py").write_text(SCRIPT)
    (distrun.cwd / "job.yaml").write_text(SPEC)
    assert distrun("launch", "job.yaml").returncode == 0
    (task,) = json.loads(distrun("status", "--json").stdout)["job"]["tasks"]
    assert (task["progress"]["STEP"], task["progress"]["EPOCH"]) == (8, 1)


def test_a_launch_says_once_that_a_task_reports_too_much(distrun: Distrun) -> None:
    (distrun.cwd / "speak.py").write_text(FLOOD)
    (distrun.cwd / "job.yaml").write_text(SPEC)
    done = distrun("launch", "job.yaml")
    assert done.returncode == 0
    said = "worker:0: it reports more progress than distrun reads: the rest is ignored"
    assert done.stderr.count(said) == 1
    assert distrun("events").stdout.count(said) == 1


PAGE = Path(__file__).parents[2] / "docs" / "progress.md"


@pytest.fixture
def report() -> str:
    """The function that the page shows, and its imports."""
    text = PAGE.read_text()
    (code,) = re.findall(
        "<!-- run by: tests/process/test_progress.py -->\n```python\n(.*?)```", text, re.DOTALL
    )
    assert code.count("\n") == 5
    return f"import os, socket, time\n{code}"


def test_the_function_of_the_page_reports_and_does_nothing_elsewhere(
    distrun: Distrun, report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    call = re.search(r"report\(EPOCH=.*\)", report)
    assert call
    (distrun.cwd / "speak.py").write_text(f"{report}\n{call[0]}\n")
    (distrun.cwd / "job.yaml").write_text(SPEC)
    assert distrun("launch", "job.yaml").returncode == 0
    (task,) = distrun.status()["tasks"]
    values = {name: float(value) for name, value in re.findall(r"([A-Z]+)=([\d.]+)", call[0])}
    assert task["progress"] == values
    assert len(values) == 6
    exec(f"{report}\n{call[0]}\n", {})
    assert capfd.readouterr() == ("", "")


def test_totals_and_own_keys_are_kept_shown_and_numbers(
    distrun: Distrun, report: str, terminal: OpenTerminal
) -> None:
    body = """
report(EPOCH=2, EPOCHS=3, STEPS=500, LOSS=0.25, ACCURACY=0.951, MY_KEY="warm-up", NAN=float("nan"))
while not os.path.exists("go"):
    report(STEP=120)
    time.sleep(0.7)  # longer than what is sent together
"""
    (distrun.cwd / "speak.py").write_text(f"{report}\n{body}")
    (distrun.cwd / "job.yaml").write_text(SPEC)
    window = terminal("launch", "job.yaml", columns=120)
    wait_until(lambda: "epoch 2/3  step 120/500 24%  loss 0.25  accuracy 0.951" in window.read())
    shown = " my_key warm-up nan nan"
    assert shown.replace(" ", "  ", 1) in window.read().replace("up  nan", "up nan")
    assert shown in distrun("status").stdout
    (task,) = distrun.status()["tasks"]
    progress = {"EPOCH": 2, "EPOCHS": 3, "STEP": 120, "STEPS": 500, "LOSS": 0.25}
    assert task["progress"] == {**progress, "ACCURACY": 0.951, "MY_KEY": "warm-up", "NAN": "nan"}
    assert isinstance(task["progress"]["STEP"], int)
    (distrun.cwd / "go").touch()
    wait_until(window.ended)
