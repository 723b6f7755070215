"""`distrun watch` in real terminals."""

import asyncio
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.command import Distrun
from harness.parts.cli import WatchApp
from harness.parts.records import JobFolder
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until

pytest.importorskip("textual")

HELD = """\
import os, time
print("begun", os.environ["DISTRUN_TASK"], flush=True)
def held():
    while not os.path.exists("go"): time.sleep(0.1)
held()
print("went on", flush=True)
raise SystemExit(3)
"""
QUESTION = "y stops it"


def leaves(window: Terminal, code: int) -> None:
    """It ends with this exit code, and the terminal is as it was before."""
    assert window.finish() == code
    assert window.seen.rfind("\x1b[?1049l") > window.seen.rfind("\x1b[?1049h"), "the screen before"
    assert window.seen.rfind("\x1b[?25h") > window.seen.rfind("\x1b[?25l"), "the cursor"
    assert termios.tcgetattr(window.master)[3] & termios.ECHO
    assert "Traceback" not in window.seen


def test_tasks_log_and_stacks_of_the_chosen_one(distrun: Distrun, terminal: OpenTerminal) -> None:
    (distrun.cwd / "held.py").write_text(HELD)
    job = distrun.detached(f"exec {sys.executable} held.py", workers=6)
    window = terminal("watch", job)
    window.shows("worker:5")
    written = [""]

    def is_stuck() -> bool:  # what is drawn is not read: it waits for that
        window.resize(80 + len(written) % 50, 24)
        window.process.send_signal(signal.SIGWINCH)
        written.append(Path(f"/proc/{window.process.pid}/io").read_text().split()[3])
        return len(set(written[-9:])) == 1

    wait_until(is_stuck, interval=0.1)
    window.close()
    assert window.process.wait(30) == -signal.SIGHUP, "it ends with its terminal"
    window = terminal("watch", job, columns=60, rows=14)
    window.shows(job, "TASK", "STATE", "MEM", "worker:0", "log of worker:0", "begun worker:0")
    window.type("\x1b[B")  # down
    window.shows("log of worker:1", "begun worker:1")
    window.type("/:5\r")
    window.shows("log of worker:5", "begun worker:5", "Show all")
    wait_until(lambda: re.search(r"worker:5 +running", window.text()), what="whole cells")
    window.type("\x1b")
    window.type("/:5\rs")  # at once: the last key is none of the text
    window.shows("stacks of worker:5", "held.py:4")
    window.type("l")
    wait_until(lambda: window.text().count("log of worker:5") > 1)
    window.type("\x1b")
    window.resize(60, 12)
    window.process.send_signal(signal.SIGWINCH)
    (distrun.cwd / "go").touch()  # it ends while it is watched
    window.shows("went on", "failed", "exit code 3")
    for key, answer in (("k", "the job has ended"), ("s", "nothing of it runs")):
        window.type(key)
        window.shows(answer)
    window.process.send_signal(signal.SIGTERM)
    leaves(window, 143)


def test_stop_asks_first(distrun: Distrun, terminal: OpenTerminal) -> None:
    script = "echo begun $DISTRUN_TASK; [ $DISTRUN_ATTEMPT = 0 ] && exit 3; exec sleep 600"
    job = distrun.detached(script, restart={"max": 1, "backoff": "10ms"})
    window = terminal("watch", columns=80)
    window.shows("begun worker:0", "  earlier  ", f"distrun logs {job} -t worker:")
    window.type("k")
    window.shows(QUESTION)
    window.type("n")

    def type_until(key: str, has_answered: Callable[[], bool]) -> None:
        def typed() -> bool:
            window.type(key)
            return has_answered()

        wait_until(typed, interval=0.3)

    type_until("/", lambda: "tasks, states or hosts" in window.text())  # none while it is open
    asked = window.text().count(QUESTION)
    window.type("none such")
    window.shows("no task, state or host has the text")
    window.type("\r")
    type_until("k", lambda: window.text().count(QUESTION) > asked)
    assert distrun.status(job)["state"] == "running"
    window.type("y")
    window.shows("stopped by distrun watch")
    window.type("\x03")
    leaves(window, 0)
    assert distrun.status(job)["exit_code"] == 137


def test_an_ended_job_and_what_needs_a_terminal(distrun: Distrun, terminal: OpenTerminal) -> None:
    distrun.launch("echo hello; exit 5", name="rather-long-" * 4)
    for words in (("watch",), ("status", "-w")):
        assert "distrun status " in distrun.told(2, *words)
    assert distrun("watch", "none-such").returncode == 2
    assert terminal("watch", columns=80, term="dumb").finish() == 2
    window = terminal("status", "-w", columns=50, rows=12)
    window.shows("exit code 5", "hello")
    assert re.search(r"\d failed", window.text()), "in a second row: the name is long"
    assert distrun("clean", "--all").returncode == 0  # its record is removed while it is shown
    window.type("s")
    window.type("q")
    leaves(window, 0)
    assert not re.search("[▁-█]", window.text()), "a scroll bar of the screen, over what is shown"


def test_what_is_chosen_stays_when_rows_are_made_again(distrun: Distrun) -> None:
    job = distrun.launch("sleep 0.01", workers=3).stderr.split()[2].rstrip(":")
    app = WatchApp(JobFolder(distrun.home / "jobs" / job))
    opened: list[str | None] = []
    app._open_log = opened.append  # type: ignore[method-assign, assignment]

    async def resized() -> None:
        async with app.run_test(size=(100, 14)) as pilot:
            while app.chosen is None:
                await pilot.pause(0.05)
            await pilot.press("down", "down")
            before = app._shown
            app._pane.write("line\n" * 99)
            await pilot.resize_terminal(20, 14)
            while app._shown == before:
                await pilot.pause(0.05)
            await pilot.pause()
            assert app._pane.is_vertical_scroll_end, "the head is larger"

    asyncio.run(resized())
    assert opened == ["worker:0", "worker:1", "worker:2"]


def test_a_job_without_tasks_has_no_word_on_the_filter(distrun: Distrun) -> None:
    assert distrun("run", "-H", "none.invalid", "true").returncode == 69
    (folder,) = (distrun.home / "jobs").iterdir()
    app = WatchApp(JobFolder(folder))

    async def screen() -> str:
        async with app.run_test(size=(100, 14)) as pilot:
            while not app._notes:
                await pilot.pause(0.05)
            await pilot.pause()
            return app.export_screenshot().replace("&#160;", " ")

    shown = asyncio.run(screen())
    assert "cannot be used" in shown
    assert "no task, state" not in shown


def test_the_rate_is_that_of_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = WatchApp(JobFolder(tmp_path))
    state = SimpleNamespace(name="worker:0", attempt=0, has_ended=False)
    for n in range(10):
        done = 33 * n  # an epoch and three steps
        progress = {"EPOCH": f"{1 + done // 30}", "STEP": f"{done % 30}"}
        progress |= {"EPOCHS": "1000", "STEPS": "30"}
        at = time.time() + 2 * n - 30  # the last one was 12 s ago
        task: Any = SimpleNamespace(state=state, progress=progress, progress_at=at)
        rate = app._rate(task)
    assert rate == "16.5/s"
    monkeypatch.setattr(time, "time", lambda: at + 41)
    assert not app._rate(task), "it has hung for longer than its rate is measured"
