"""Progress that a task reports or prints: what distrun shows and records, up to the last of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, recorded_events
from harness.terminal import OpenTerminal
from harness.values import not_none
from harness.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "progress.md"


def test_the_function_of_the_page_reports_and_does_nothing_elsewhere(
    distrun: Distrun, capfd: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(
        "<!-- run by: tests/process/test_progress.py -->\n```python\n(.*?)```",
        PAGE.read_text(),
        re.DOTALL,
    )
    assert code.count("\n") == 5
    report = f"import os, socket, time\n{code}"
    call = not_none(re.search(r"report\(EPOCH=.*\)", report))[0]
    (distrun.cwd / "speak.py").write_text(f"{report}\n{call}\n")
    assert distrun.launch("", 1, program={"script": "speak.py"}).returncode == 0
    values = {name: float(value) for name, value in re.findall(r"([A-Z]+)=([\d.]+)", call)}
    assert progress(distrun) == values
    assert len(values) == 6
    exec(f"{report}\n{call}\n", {})
    assert capfd.readouterr() == ("", "")


BARS = """
import os, socket, sys, time
from pathlib import Path

folder, task = Path.cwd(), os.environ["DISTRUN_TASK"]

def show(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def keras(step, loss=0.5):
    done = 20 * step // 500
    show("\\b" * 60 + f"\\r\\x1b[1m{step:3}/500\\x1b[0m \\x1b[32m{'━' * done}\\x1b[0m\\x1b[37m"
        f"{'━' * (20 - done)}\\x1b[0m \\x1b[1m9s\\x1b[0m 25ms/step"
        f" - accuracy: 0.9500 - loss: {loss:.4f}")

def tqdm(step, after="", loss="0.25"):
    bar = ("#" * (step // 10)).ljust(10)
    show(f"\\rtrain: {step:3}%|{bar}| {step}/100 [00:12<00:30, 40.0it/s, loss={loss}]{after}")

def report(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(text.encode(), "\\0" + os.environ["DISTRUN_NOTIFY"][1:])

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.02)
"""


@pytest.fixture
def script(distrun: Distrun) -> Callable[..., Path]:
    """Write a spec of tasks that run some Python; more keys as keywords."""

    def write(body: str, workers: int = 1, **keys: Any) -> Path:
        (distrun.cwd / "bars.py").write_text(BARS + body)
        program = {"command": [sys.executable, "bars.py"]}
        return distrun.write_spec("", workers=workers, program=program, **keys)

    return write


def progress(distrun: Distrun, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = distrun.status()["tasks"][number]["progress"]
    return found


def test_the_live_line_shows_a_bar_while_it_moves_and_the_output_one_line(
    script: Callable[..., Path], terminal: OpenTerminal, distrun: Distrun
) -> None:
    body = """
show("Epoch 2/3\\n")
keras(10)
keras(120)
wait_for("go")
keras(500, 0.25)
show("\\n")
tqdm(24)
wait_for("on")
tqdm(100, "\\n")
"""
    window = terminal("launch", script(body), columns=120)
    wait_until(lambda: "epoch 2/3  step 120/500 24%  9.0 s left in epoch" in window.read())
    assert "━" not in window.read()
    assert "loss 0.5  accuracy 0.95" in window.read()
    (distrun.cwd / "go").touch()
    wait_until(lambda: "step 24/100 24%  30 s left in epoch  loss 0.25" in window.read())
    (distrun.cwd / "on").touch()
    wait_until(window.ended)
    assert window.process.returncode == 0
    output = [line for line in window.text().splitlines() if " | " in line]
    bars = [line.rpartition(" | ")[2] for line in output if "/500 " in line]
    assert len(bars) == 1
    assert bars[0].startswith("500/500 ━━━━━━━━━━━━━━━━━━━━ 9s 25ms/step")
    assert sum("100%|##########| 100/100" in line for line in output) == 1
    assert "24%|" not in window.text()
    live = re.findall("\x1b\\[1m([^\n\x1b]*)\x1b\\[0m\r", window.seen)
    assert max(map(len, live)) <= 119


def test_what_a_task_reports_wins_and_all_of_it_is_shown_and_recorded(
    script: Callable[..., Path], distrun: Distrun
) -> None:
    body = """
tqdm(24)
wait_for("metric")
report("LOSS=0.75 F1=0.5 PHASE=warm-up NAN=nan")
wait_for("step")
report("STEP=7 STEPS=9")
tqdm(25)
wait_for("go")
tqdm(26)
report("STEP=8")
os._exit(0)
"""
    distrun("launch", "-d", script(body))
    wait_until(lambda: progress(distrun).get("STEP") == 24)
    (distrun.cwd / "metric").touch()
    wait_until(lambda: "F1" in progress(distrun))
    reported = {"LOSS": 0.75, "F1": 0.5, "PHASE": "warm-up", "NAN": "nan"}
    assert progress(distrun) == {"STEP": 24, "STEPS": 100, "ETA": 30, **reported}
    (distrun.cwd / "step").touch()
    reported |= {"STEP": 7, "STEPS": 9}
    wait_until(lambda: progress(distrun) == reported)
    shown = distrun.asked("status")
    assert "step 7/9 77% loss 0.75 f1 0.5 phase warm-up nan nan" in shown
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    reported["STEP"] = 8
    assert progress(distrun) == reported
    assert isinstance(progress(distrun)["STEP"], int)
    assert json.loads(distrun.asked("ps", "-a", "--json"))["jobs"][0]["progress"]["LOSS"] == 0.75
    (told,) = (each for each in recorded_events(distrun) if each["event"] == "TaskReported")
    assert (told["task"], told["values"]["STEP"]) == ("worker:0", 8)
    assert "last reported step 8/9 88%" in distrun.asked("events")
