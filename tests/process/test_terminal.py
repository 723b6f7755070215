"""Jobs on a pseudo-terminal: Ctrl-C, a closed window, a detached job."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.processes import survivors
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

CTRL_C = "\x03"
CLEANS_UP = (
    "trap 'echo INT >> signals' INT; "
    "trap 'echo TERM >> signals; sleep 0.5; echo cleaned up $DISTRUN_TASK; exit 0' TERM; "
    "echo ready $DISTRUN_TASK; while :; do sleep 0.1; done"
)


def test_ctrl_c_reaches_launch_alone_and_ends_gracefully(
    distrun: Distrun, terminal: OpenTerminal, tmp_path: Path
) -> None:
    window = terminal("launch", distrun.write_spec(CLEANS_UP, timeouts={"grace": "1h"}))
    wait_until(lambda: window.read().count("ready") == 2, timeout=30)
    window.type(CTRL_C)
    wait_until(window.ended, timeout=60)
    assert window.process.returncode == 130
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
def test_ctrl_c_while_it_starts_is_not_lost(
    terminal: OpenTerminal, distrun: Distrun, files: str
) -> None:
    window = terminal("launch", distrun.write_spec("exec sleep 600"))
    wait_until(lambda: list(distrun.home.glob(files)), timeout=30, what=f"{files} is there")
    window.type(CTRL_C)
    wait_until(window.ended, timeout=60)
    assert window.process.returncode == 130, window.seen
    assert "Traceback" not in window.seen


def test_an_interrupt_during_the_imports_shows_no_traceback(distrun: Distrun) -> None:
    # The signal comes as soon as the interpreter runs: in the middle of importing.
    code = (
        "import os, signal, sys; from distrun.__main__ import main; "
        "sys.addaudithook(lambda event, args: event == 'import' and args[0] == 'click' "
        "and os.kill(os.getpid(), signal.SIGINT)); main()"
    )
    done = subprocess.run([distrun.argv[0], "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""
