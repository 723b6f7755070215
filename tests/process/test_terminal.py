"""Jobs on a pseudo-terminal: Ctrl-C, a closed window, `attach` from another one; lost signals."""

import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.parts.cli import main, output, signals
from harness.parts.linux import syscalls
from harness.processes import captured, survivors
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

CTRL_C = "\x03"
CLEANS_UP = (
    "trap 'echo INT >> signals' INT; "
    "trap 'echo TERM >> signals; sleep 0.5; echo cleaned up $DISTRUN_TASK; exit 0' TERM; "
    "echo ready $DISTRUN_TASK; while :; do sleep 0.1; done"
)


def test_ctrl_c_ends_gracefully(distrun: Distrun, terminal: OpenTerminal, tmp_path: Path) -> None:
    window = terminal("launch", distrun.write_spec(CLEANS_UP, timeouts={"grace": "1h"}))
    wait_until(lambda: window.read().count("ready") == 2, timeout=30)
    window.type(CTRL_C)
    assert window.finish() == 130
    assert window.seen.count("cleaned up") == 2
    assert (tmp_path / "signals").read_text() == "TERM\nTERM\n"
    assert distrun.status()["state"] == "stopped"
    assert "exit code 130, distrun's: stopped by SIGINT" in window.seen.splitlines()[-1]


def test_closing_the_window_ends_a_foreground_job(distrun: Distrun, terminal: OpenTerminal) -> None:
    window = terminal("launch", distrun.write_spec("echo ready $DISTRUN_TASK; exec sleep 600"))
    wait_until(lambda: window.read().count("ready") == 2, timeout=30)
    job_id = distrun.status()["job_id"]
    window.close()
    assert window.process.wait(60) == 129
    assert survivors(job_id) == []
    assert distrun.status()["state"] == "stopped"


@pytest.mark.parametrize("files", ["jobs", "jobs/*/plan.json"])
def test_ctrl_c_at_the_start_is_kept(terminal: OpenTerminal, distrun: Distrun, files: str) -> None:
    window = terminal("launch", distrun.write_spec("exec sleep 600"))
    wait_until(lambda: list(distrun.home.glob(files)), timeout=30, what=f"{files} is there")
    window.type(CTRL_C)
    assert window.finish() == 130, window.seen
    assert "Traceback" not in window.seen


def test_an_interrupt_during_the_imports_shows_no_traceback(distrun: Distrun) -> None:
    # The signal comes as soon as the interpreter runs: in the middle of importing.
    code = (
        "import os, signal, sys; from distrun.__main__ import main; "
        "sys.addaudithook(lambda event, args: event == 'import' and args[0] == 'click' "
        "and os.kill(os.getpid(), signal.SIGINT)); main()"
    )
    done = subprocess.run([distrun.argv[0], "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


QUESTION = "s: stop the job, d: leave it, other keys: go on"


def until(path: Path, end: str = "") -> str:
    """A task that prints, and waits for a file."""
    return (
        f"echo begun $DISTRUN_TASK; while [ ! -e {path} ]; do sleep 0.05; done; "
        f"echo went on $DISTRUN_TASK; {end}"
    )


@pytest.fixture
def job(distrun: Distrun, tmp_path: Path) -> Iterator[str]:
    """A job that runs until the file `go` is there."""
    job_id = distrun.detached(until(tmp_path / "go"))
    yield job_id
    distrun("kill", job_id)


def test_attach_shows_all_output(distrun: Distrun, terminal: OpenTerminal, tmp_path: Path) -> None:
    job = distrun.detached(until(tmp_path / "go", "exit 3"))
    windows = [terminal("attach", *args) for args in ([], [job, "-t", "worker:1"])]
    for window in windows:
        window.shows("begun worker:1", "tasks up")
        wait_until(lambda: re.search(r"tasks up  [\d.]+ s  ", window.read()), timeout=30)  # noqa: B023
    followed = distrun.start("logs", "-f", job, stdout=-3, stderr=-1, text=True)
    (tmp_path / "go").touch()
    for window in windows:
        assert window.finish() == 3
        assert f"job {job} failed" in window.seen
    assert "worker:0 |" not in windows[1].text()
    assert "last lines" not in windows[0].text()
    window = terminal("attach")
    assert (window.finish(), "last lines" in window.text()) == (3, True)
    ended = distrun("attach")
    _, told = followed.communicate(timeout=60)
    assert (ended.returncode, followed.returncode) == (3, 0)
    for text in (ended.stderr, told):
        assert text.splitlines()[-1].startswith("distrun: exit code 3, worker:")


def test_ctrl_c_asks_and_s_ends_the_job(distrun: Distrun, job: str, terminal: OpenTerminal) -> None:
    windows = [terminal("attach", job, columns=100) for _ in range(4)]
    before = termios.tcgetattr(windows[0].master)
    for window in windows:
        window.shows("begun worker:0", "begun worker:1", "2/2 tasks up")
        window.type(CTRL_C)
        window.shows(QUESTION)
    windows[0].type("\x1a")  # Ctrl-Z, as any other key
    wait_until(lambda: "tasks up" in windows[0].read().rpartition(QUESTION)[2])
    windows[0].type(CTRL_C)
    wait_until(lambda: "tasks up" not in windows[0].read().rpartition(QUESTION)[2])
    # The last question is still open when the job ends.
    for window, key, code in zip(windows, ("d", CTRL_C, "s", ""), (0, 130, 137, 137), strict=True):
        window.type(key)
        assert window.finish() == code
        assert distrun.status()["running"] is (code != 137)
        assert termios.tcgetattr(window.master) == before
    assert "distrun attach" in windows[2].seen.splitlines()[-1]


def test_without_a_name_a_running_job_is_meant(distrun: Distrun, job: str, tmp_path: Path) -> None:
    distrun.launch("exit 0", workers=1, name="newer")
    assert distrun.status()["job_id"] == job
    assert "begun worker:0" in distrun.asked("logs")
    for args in (["events"], ["report", "-o", "-"]):
        assert job in distrun(*args).stdout
    # The end of `attach` changes nothing, also where there is no keyboard to answer with.
    with (tmp_path / "shown").open("wb") as file:
        process = distrun.start("attach", stdin=-3, stdout=file, stderr=file)
    wait_until(lambda: b"begun" in (tmp_path / "shown").read_bytes(), timeout=30)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    (tmp_path / "go").touch()
    wait_until(lambda: distrun.status(job)["state"] == "succeeded", timeout=30)
    assert distrun.status()["name"] == "newer"


WHILE_STARTING = f"""
import os, signal, time
from {syscalls.__name__} import ENDING_SIGNALS, blocked
import {output.__name__} as output, {signals.__name__} as signals

signals.install()
shown = output.Output(1)
for number in ENDING_SIGNALS:
    try:
        with blocked():
            os.kill(os.getpid(), number)
            time.sleep(0.2)
            print("started")
    except signals.ENDED:
        signal.alarm(0)  # it goes on, and may take longer than a command that ends
        print("ended")
"""
TWICE = f"""
import os, signal, sys
import {main.__name__} as main, {signals.__name__} as signals

def send(*_, **__):
    os.kill(os.getpid(), signal.SIGTERM)
    return signal.SIGTERM

main._execute = lambda **_: (signals.install(), send())
signals.signal_of = send  # which main() calls when the first one has ended the command
main.main()
"""
SIGNALLED = {
    # Else it would be left: the thread that writes the output would get the signal.
    "a process that is being started is known first": (WHILE_STARTING, 0, 6 * "started\nended\n"),
    "a second one when a command has ended shows no traceback": (TWICE, 143, ""),
}


@pytest.mark.parametrize("what", SIGNALLED)
def test_signals_at_a_bad_moment(what: str) -> None:
    program, code, said = SIGNALLED[what]
    done = captured([sys.executable, "-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
