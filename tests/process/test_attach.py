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


def test_it_shows_what_was_printed_what_follows_and_the_result(
    distrun: Distrun, terminal: OpenTerminal, tmp_path: Path
) -> None:
    job = distrun.detached(until(tmp_path / "go", "exit 3"))
    windows = [terminal("attach", *args) for args in ([], [job, "-t", "worker:1"])]
    for window in windows:
        shows(window, "begun worker:1", "tasks up")
        wait_until(lambda: re.search(r"tasks up  [\d.]+ s  ", window.read()), timeout=30)  # noqa: B023
    followed = distrun.start("logs", "-f", job, stdout=-3, stderr=-1, text=True)
    (tmp_path / "go").touch()
    for window in windows:
        wait_until(window.ended, timeout=60)
        assert window.process.returncode == 3
        assert f"job {job} failed" in window.seen
    assert "worker:0 |" not in windows[1].text()
    ended = distrun("attach")
    _, told = followed.communicate(timeout=60)
    assert (ended.returncode, followed.returncode) == (3, 0)
    for text in (ended.stderr, told):
        assert text.splitlines()[-1].startswith("distrun: exit code 3, worker:")


def test_ctrl_c_asks_and_only_s_ends_the_job(
    distrun: Distrun, job: str, terminal: OpenTerminal
) -> None:
    for key, code, goes_on in (("d", 0, True), ("s", 137, False)):
        window = terminal("attach", job, columns=100)
        shows(window, "begun worker:0", "begun worker:1", "2/2 tasks up")
        before = termios.tcgetattr(window.master)
        window.type(CTRL_C)
        shows(window, QUESTION)
        window.type(key)
        wait_until(window.ended, timeout=60)
        assert window.process.returncode == code
        assert distrun.status()["running"] is goes_on
        assert termios.tcgetattr(window.master) == before
    assert "distrun attach" in window.seen.splitlines()[-1]


def test_without_a_name_the_running_job_comes_before_a_newer_ended_one(
    distrun: Distrun, job: str, tmp_path: Path
) -> None:
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
