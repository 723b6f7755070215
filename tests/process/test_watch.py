"""`distrun watch` in real terminals."""

from __future__ import annotations

import re
import signal
import sys
import termios

import pytest

from harness.command import Distrun
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until

pytest.importorskip("textual")
GOES_ON = "echo begun $DISTRUN_TASK; until [ -e go ]; do sleep 0.05; done; echo went on; exit 3"
QUESTION = "y stops it"


def shows(window: Terminal, *texts: str) -> None:
    wait_until(lambda: all(text in window.text() for text in texts), what=str(texts))


def leaves(window: Terminal, code: int) -> None:
    """It ends with this exit code, and the terminal is as it was before."""
    wait_until(window.ended)
    assert window.process.returncode == code
    assert window.seen.rfind("\x1b[?1049l") > window.seen.rfind("\x1b[?1049h"), "the screen before"
    assert window.seen.rfind("\x1b[?25h") > window.seen.rfind("\x1b[?25l"), "the cursor"
    assert termios.tcgetattr(window.master)[3] & termios.ECHO
    assert "Traceback" not in window.seen


@pytest.mark.parametrize(("columns", "tasks"), [(80, 3), (60, 40)])
def test_tasks_and_the_log_of_the_chosen_one(
    distrun: Distrun, terminal: OpenTerminal, columns: int, tasks: int
) -> None:
    job = distrun.detached(GOES_ON, workers=tasks)
    window = terminal("watch", job, columns=columns)
    shows(window, job, "TASK", "STATE", "MEM", "worker:0", "log of worker:0", "begun worker:0")
    window.type("\x1b[B")  # down
    shows(window, "log of worker:1", "begun worker:1")
    window.type(f"/:{tasks - 1}\r")
    shows(window, f"log of worker:{tasks - 1}", f"begun worker:{tasks - 1}", "Show all")
    whole = rf"worker:{tasks - 1} +running"
    wait_until(lambda: re.search(whole, window.text()), what="cells that are not cut")
    window.type("\x1b")
    window.resize(60, 12)
    window.process.send_signal(signal.SIGWINCH)
    (distrun.cwd / "go").touch()  # it ends while it is watched
    shows(window, "went on", "failed", "exit code 3")
    window.type("k")
    shows(window, "the job has ended")
    window.type("q")
    leaves(window, 0)


def test_stop_asks_first(distrun: Distrun, terminal: OpenTerminal) -> None:
    job = distrun.detached(GOES_ON)
    window = terminal("watch", columns=80)
    shows(window, "begun worker:0")
    window.type("k")
    shows(window, QUESTION)
    window.type("n")

    def is_answered() -> bool:
        window.type("/")  # nothing while the question is open
        return "tasks, states or hosts" in window.text()

    wait_until(is_answered)
    asked = window.text().count(QUESTION)
    window.type("\r")

    def asks_again() -> bool:
        window.type("k")
        return window.text().count(QUESTION) > asked

    wait_until(asks_again)
    assert distrun.status(job)["state"] == "running"
    window.type("y")
    shows(window, "stopped by distrun watch")
    window.type("\x03")
    leaves(window, 0)
    assert distrun.status(job)["exit_code"] == 137


def test_stacks_of_the_chosen_task(distrun: Distrun, terminal: OpenTerminal) -> None:
    (distrun.cwd / "held.py").write_text("import time\ndef held():\n    time.sleep(600)\nheld()\n")
    job = distrun.detached(f"echo begun; exec {sys.executable} held.py")
    window = terminal("watch", columns=80)
    shows(window, "begun")
    window.type("s")
    shows(window, "where worker:0 stands")
    wait_until(lambda: "held.py:3" in window.text())
    window.type("l")
    wait_until(lambda: window.text().count("log of worker:0") > 1)
    distrun("kill", job)
    shows(window, "stopped by distrun kill")
    window.type("s")
    shows(window, "nothing of it runs")
    window.process.send_signal(signal.SIGTERM)
    leaves(window, 143)


def test_an_ended_job_and_what_needs_a_terminal(distrun: Distrun, terminal: OpenTerminal) -> None:
    distrun.launch("echo hello; exit 5")
    for words in (("watch",), ("status", "-w")):
        done = distrun(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "distrun status " in done.stderr
    assert distrun("watch", "none-such").returncode == 2
    dumb = terminal("watch", columns=80, term="dumb")
    wait_until(dumb.ended)
    assert dumb.process.returncode == 2
    window = terminal("status", "-w", columns=80)
    shows(window, "failed", "exit code 5", "hello")
    assert distrun("clean", "--all").returncode == 0  # its record is removed while it is shown
    window.type("s")
    window.type("q")
    leaves(window, 0)
