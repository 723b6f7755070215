"""Why a job failed, and where its program sets TF_CONFIG, may take long to find out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.command import Distrun, WriteSpec
from harness.processes import alive, descendants
from harness.waiting import wait_until

# A function waits until somebody opens a named pipe. The supervisor is a fork of this process.
WAITS = """
import importlib, sys
gate, seconds, module, name = (sys.argv.pop(1) for _ in range(4))
module = importlib.import_module(module)
original = getattr(module, name)

def wait(*args):
    open(gate).close()
    return original(*args)

setattr(module, name, wait)
from distrun.supervisor.hosts import inquiry
inquiry._SECONDS = float(seconds)
from distrun.__main__ import main
main()
"""
ANALYSIS = ("distrun.verdict.analysis", "analyze")
SETTER = ("distrun.lint.check", "find_tf_config_line")
FAILS = "if [ $DISTRUN_ATTEMPT = 0 ]; then echo at once; exit 3; fi; exec sleep 600"
LISTENS = """
import socket, time
with socket.create_server(("127.0.0.1", 0)):
    print("up", flush=True)
    time.sleep(600)
"""

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def launch(distrun: Distrun, gate: Path) -> Launch:
    """Start a launch whose function waits, at most so many seconds."""

    def start(spec: Path, waiting: tuple[str, str], seconds: float = 600.0) -> Any:
        program = (sys.executable, "-c", WAITS, str(gate), str(seconds), *waiting)
        usual, distrun.argv = distrun.argv, program  # type: ignore[assignment]
        process = distrun.start("launch", spec, stderr=subprocess.PIPE, text=True)
        distrun.argv = usual
        return process

    return start


def verdicts(distrun: Distrun) -> list[dict[str, Any]]:
    lines = map(json.loads, distrun("events", "--json").stdout.splitlines())
    return [each["verdict"] for each in lines if each["event"] == "VerdictReached"]


def title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def supervisor_that_asks(launched: subprocess.Popen[str]) -> psutil.Process:
    """The supervisor, once a fork of it looks for an answer."""
    found: list[psutil.Process] = []

    def asks() -> bool:
        below = {title(each): each for each in descendants(launched.pid)}
        found[:] = [each for name, each in below.items() if "distrun: supervisor" in name]
        return any("distrun: question of" in name for name in below)

    wait_until(asks, timeout=20)
    return found[0]


def test_a_restart_does_not_wait_for_the_analysis(
    distrun: Distrun, gate: Path, write_spec: WriteSpec, launch: Launch
) -> None:
    launch(write_spec(FAILS, workers=1, restart={"max": 1, "backoff": "10ms"}), ANALYSIS)
    wait_until(lambda: distrun("events", "--json").stdout.count('"TaskStarted"') == 2, timeout=20)
    assert verdicts(distrun) == []
    gate.write_text("")
    wait_until(lambda: len(verdicts(distrun)) == 1, timeout=20)
    assert verdicts(distrun)[0]["task"] == "worker:0"
    assert distrun("kill").returncode == 0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_jobs_end_waits_for_the_analysis_for_some_time(
    distrun: Distrun, gate: Path, write_spec: WriteSpec, launch: Launch, is_answered: bool
) -> None:
    launched = launch(write_spec(FAILS, workers=1), ANALYSIS, 600.0 if is_answered else 1.0)
    if is_answered:
        assert alive(supervisor_that_asks(launched))
        gate.write_text("")
    said = launched.communicate(timeout=30)[1]
    assert launched.returncode == 3, said
    (verdict,) = verdicts(distrun)
    assert (verdict["task"], verdict["kind"]) == ("worker:0", "exit" if is_answered else "other")


def test_kill_does_not_wait_until_the_program_is_read(
    distrun: Distrun, write_spec: WriteSpec, launch: Launch
) -> None:
    script = distrun.cwd / "train.py"
    script.write_text(LISTENS)
    launched = launch(write_spec("", workers=2, program={"script": str(script)}), SETTER)
    supervisor = supervisor_that_asks(launched)
    assert distrun("kill", "--grace", "0s", timeout=20).returncode == 0
    assert not alive(supervisor)
