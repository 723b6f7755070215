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
from harness.waiting import wait_until

FLOOD = """\
import os, socket, time
speak = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
speak.connect("\\0" + os.environ["DISTRUN_NOTIFY"][1:])
end = time.monotonic() + 1
while time.monotonic() < end:
    speak.send(b"STEP=1")
"""


@pytest.fixture
def spoken(distrun: Distrun) -> Callable[[str], Path]:
    """Write a spec of one task that runs some Python."""

    def write(script: str) -> Path:
        (distrun.cwd / "speak.py").write_text(script)
        return distrun.write_spec("", 1, program={"script": "speak.py"}, strategy="default")

    return write


def test_a_launch_says_once_that_a_task_reports_too_much(
    distrun: Distrun, spoken: Callable[[str], Path]
) -> None:
    done = distrun("launch", spoken(FLOOD))
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
    distrun: Distrun,
    spoken: Callable[[str], Path],
    report: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = re.search(r"report\(EPOCH=.*\)", report)
    assert call
    assert distrun("launch", spoken(f"{report}\n{call[0]}\n")).returncode == 0
    values = {name: float(value) for name, value in re.findall(r"([A-Z]+)=([\d.]+)", call[0])}
    assert progress(distrun) == values
    assert len(values) == 6
    exec(f"{report}\n{call[0]}\n", {})
    assert capfd.readouterr() == ("", "")


def test_totals_and_own_keys_are_kept_shown_and_numbers(
    distrun: Distrun, spoken: Callable[[str], Path], report: str, terminal: OpenTerminal
) -> None:
    body = """
report(EPOCH=2, EPOCHS=3, STEPS=500, LOSS=0.25, ACCURACY=0.951, MY_KEY="warm-up", NAN=float("nan"))
while not os.path.exists("go"):
    report(STEP=120)
    time.sleep(0.7)  # longer than what is sent together
"""
    window = terminal("launch", spoken(f"{report}\n{body}"), columns=120)
    wait_until(lambda: "epoch 2/3  step 120/500 24%  loss 0.25  accuracy 0.951" in window.read())
    shown = " my_key warm-up nan nan"
    assert shown.replace(" ", "  ", 1) in window.read().replace("up  nan", "up nan")
    assert shown in distrun("status").stdout
    found = progress(distrun)
    values = {"EPOCH": 2, "EPOCHS": 3, "STEP": 120, "STEPS": 500, "LOSS": 0.25}
    assert found == {**values, "ACCURACY": 0.951, "MY_KEY": "warm-up", "NAN": "nan"}
    assert isinstance(found["STEP"], int)
    (distrun.cwd / "go").touch()
    wait_until(window.ended)


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


def test_status_json_and_the_record_have_what_was_printed(
    script: Callable[..., Path], distrun: Distrun
) -> None:
    body = 'show("Epoch 2/3\\n"); keras(120); wait_for("go"); keras(400); os._exit(0)'
    distrun("launch", "-d", script(body, workers=2))
    wait_until(lambda: all(progress(distrun, number) for number in (0, 1)))
    values = {"EPOCH": 2, "EPOCHS": 3, "STEP": 120, "STEPS": 500, "ETA": 9, "LOSS": 0.5}
    assert progress(distrun) == {**values, "ACCURACY": 0.95}
    assert "epoch 2/3 step 120/500 24% 9.0 s left in epoch loss 0.5" in distrun("status").stdout
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    assert progress(distrun)["STEP"] == 400
    assert json.loads(distrun("ps", "-a", "--json").stdout)["jobs"][0]["progress"]["LOSS"] == 0.5
    reported = [event for event in recorded_events(distrun) if event["event"] == "TaskReported"]
    assert {event["task"] for event in reported} == {"worker:0", "worker:1"}
    assert all(event["values"]["STEP"] == 400 for event in reported)
    assert "last reported epoch 2/3, step 400/500 80%" in distrun("events").stdout


def test_what_a_task_reports_wins(script: Callable[..., Path], distrun: Distrun) -> None:
    body = """
tqdm(24)
wait_for("metric")
report("LOSS=0.75 F1=0.5 PHASE=warm-up")
wait_for("step")
report("STEP=7 STEPS=9")
tqdm(25)
wait_for("go")
tqdm(26)
"""
    distrun("launch", "-d", script(body))
    wait_until(lambda: progress(distrun).get("STEP") == 24)
    (distrun.cwd / "metric").touch()
    wait_until(lambda: "F1" in progress(distrun))
    reported = {"LOSS": 0.75, "F1": 0.5, "PHASE": "warm-up"}
    assert progress(distrun) == {"STEP": 24, "STEPS": 100, "ETA": 30, **reported}
    (distrun.cwd / "step").touch()
    reported |= {"STEP": 7, "STEPS": 9}
    wait_until(lambda: progress(distrun) == reported)
    shown = distrun("status").stdout
    assert "step 7/9 77% loss 0.75 f1 0.5 phase warm-up" in shown
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    assert progress(distrun) == reported


def test_a_bar_that_does_not_move_is_a_stall_whatever_is_printed(
    script: Callable[..., Path], distrun: Distrun
) -> None:
    body = """
for step in range(40, 50):
    tqdm(step)
    time.sleep(0.02)
while True:
    show("still waiting\\n")
    time.sleep(0.1)
"""
    done = distrun("launch", script(body, timeouts={"stall": "4s"}))
    assert done.returncode == 75, done.stderr
    assert progress(distrun)["STEP"] == 49
    assert distrun.status()["verdict"]["kind"] == "stalled"
