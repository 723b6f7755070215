"""A running job seen from another terminal: `attach`, `logs -f`, and commands without JOB."""

from __future__ import annotations

import re
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.terminal import OpenTerminal, Terminal
from harness.waiting import wait_until

CTRL_C = "\x03"
QUESTION = "d leaves it running"


def until(path: Path, end: str = "") -> str:
    """A task that prints, and waits for a file."""
    return (
        f"echo begun $DISTRUN_TASK; while [ ! -e {path} ]; do sleep 0.05; done; "
        f"echo went on $DISTRUN_TASK; {end}"
    )


def shows(window: Terminal, *texts: str) -> None:
    wait_until(lambda: all(text in window.read() for text in texts), timeout=30, what=str(texts))


@pytest.fixture
def job(distrun: Distrun, tmp_path: Path) -> Iterator[str]:
    """A job that runs until the file `go` is there."""
    job_id = distrun.detached(until(tmp_path / "go"))
    yield job_id
    distrun("kill", job_id)


@pytest.fixture
def attached(job: str, terminal: OpenTerminal) -> Terminal:
    """A terminal that shows the job."""
    window = terminal("attach", job, columns=100)
    shows(window, "begun worker:0", "begun worker:1", "2/2 tasks up")
    return window


def is_running(distrun: Distrun) -> bool:
    return bool(distrun.status()["state"] == "running")


def test_it_shows_what_was_printed_what_follows_and_the_result(
    distrun: Distrun, terminal: OpenTerminal, tmp_path: Path
) -> None:
    job = distrun.detached(until(tmp_path / "go", "exit 3"))
    windows = [terminal("attach", *args) for args in ([], [job], [job, "-t", "worker:1"])]
    for window in windows:
        shows(window, "begun worker:1", "tasks up")
        wait_until(lambda: re.search(r"tasks up  [\d.]+ s  ", window.read()), timeout=30)  # noqa: B023
    (tmp_path / "go").touch()
    for window in windows:
        wait_until(window.ended, timeout=60)
        assert window.process.returncode == 3
        assert f"job {job} failed" in window.seen
    assert "worker:0 |" not in windows[2].text()


@pytest.mark.parametrize(
    ("keys", "code", "goes_on"), [(CTRL_C, 130, True), ("s", 137, False)], ids=["twice", "stops"]
)
def test_ctrl_c_asks(
    distrun: Distrun, attached: Terminal, keys: str, code: int, goes_on: bool
) -> None:
    before = termios.tcgetattr(attached.master)
    attached.type(CTRL_C)
    shows(attached, QUESTION)
    attached.type(keys)
    wait_until(attached.ended, timeout=60)
    assert attached.process.returncode == code
    assert is_running(distrun) is goes_on
    assert termios.tcgetattr(attached.master) == before
    if not goes_on:
        assert "distrun attach" in attached.seen.splitlines()[-1]


def test_another_key_continues_and_d_leaves(distrun: Distrun, attached: Terminal) -> None:
    attached.type(CTRL_C)
    shows(attached, QUESTION)
    attached.type("x")
    wait_until(lambda: "tasks up" in attached.read().rpartition(QUESTION)[2], timeout=30)
    attached.type(CTRL_C)
    wait_until(lambda: QUESTION in attached.read().rpartition("tasks up")[2], timeout=30)
    attached.type("d")
    wait_until(attached.ended, timeout=60)
    assert attached.process.returncode == 0
    assert is_running(distrun)


@pytest.mark.usefixtures("job")
def test_its_death_changes_nothing_for_the_job(distrun: Distrun, tmp_path: Path) -> None:
    """Also where there is no keyboard to answer with."""
    for number, code in ((signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)):
        with (tmp_path / "shown").open("wb") as file:
            process = distrun.start("attach", stdin=-3, stdout=file, stderr=file)
        wait_until(lambda: b"begun" in (tmp_path / "shown").read_bytes(), timeout=30)
        process.send_signal(number)
        assert process.wait(30) == code
        assert is_running(distrun)


def test_followed_logs_and_an_attach_of_an_ended_job_end_with_the_result(
    distrun: Distrun, tmp_path: Path
) -> None:
    distrun.detached(until(tmp_path / "go", "exit 3"))
    process = distrun.start("logs", "-f", stdout=-1, stderr=-1, text=True)
    (tmp_path / "go").touch()
    _, told = process.communicate(timeout=60)
    attached = distrun("attach")
    assert (process.returncode, attached.returncode) == (0, 3)
    for text in (told, attached.stderr):
        assert text.splitlines()[-1].startswith("distrun: exit code 3, worker:")


def test_without_a_name_the_running_job_comes_before_a_newer_ended_one(
    distrun: Distrun, job: str, tmp_path: Path
) -> None:
    distrun.launch("exit 0", name="newer")
    assert distrun.status()["job_id"] == job
    for args in (["logs"], ["events"], ["status"], ["report", "-o", "page.html"]):
        done = distrun(*args)
        shown = done.stdout + done.stderr
        if args[0] == "report":
            shown += (tmp_path / "page.html").read_text()
        assert ("begun worker:0" if args == ["logs"] else job) in shown
    (tmp_path / "go").touch()
    wait_until(lambda: distrun.status(job)["state"] == "succeeded", timeout=30)
    assert distrun.status()["name"] == "newer"
