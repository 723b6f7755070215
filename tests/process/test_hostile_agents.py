"""A hostile agent in a real job: its host fails, the other host goes on, every command works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun

SSH = Path(__file__).parent / "programs" / "hostile_ssh.py"


SLEEP = "exec sleep 1000"


@pytest.fixture
def run_attacked(distrun: Distrun) -> Callable[..., subprocess.Popen[str]]:
    """Start a command on a job whose evaluator is on the host `evil`, with an attack."""
    programs = distrun.cwd / "bin"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SSH}" "$@"\n')
    ssh.chmod(0o755)

    def run(
        attack: str, *command: str, chief: str = SLEEP, **timeouts: str
    ) -> subprocess.Popen[str]:
        script = (
            f"case $DISTRUN_TASK in chief:0) {chief};; evaluator:0) sleep 1000;; "
            "*) exec sleep 1000;; esac"
        )
        spec = distrun.write_spec(
            script,
            strategy="parameter_server",
            cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
            hosts=[{"name": "good", "slots": 3}, {"name": "evil", "slots": 1}],
            placement="pack",
            timeouts={"link": "20s", **timeouts},
            program={"command": ["sh", "-c", script], "sync": "off", "workdir": str(distrun.cwd)},
        )
        env = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(distrun.cwd / "state"),
            "ATTACK": attack,
        }
        pipe = subprocess.PIPE
        return distrun.start(*command, spec, env=env, stdout=pipe, stderr=pipe, text=True)

    return run


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=90)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        ("foreign-exit", "chief:0, which is no task of this host"),
        ("own-words", "distrun: it succeeded"),
        ("claims-4-gib", "4294967295 bytes"),
    ],
)
def test_an_attack_is_told_and_the_job_goes_on(
    distrun: Distrun, run_attacked: Callable[..., Any], attack: str, told: str
) -> None:
    chief = "sleep 3; echo trained; exit 0"
    done = ended(run_attacked(attack, "launch", "--no-preflight", chief=chief))
    assert done.returncode == 0, done.stderr
    assert "chief:0     | trained" in done.stdout
    shown = [distrun(*args) for args in (("events",), ("status",), ("ps", "-a"), ("logs",))]
    shown += [distrun(*args, "--json") for args in (("events",), ("status",))]
    assert [each.returncode for each in shown] == [0] * 6
    faults = [each for each in shown[0].stdout.splitlines() if "evil cannot continue: " in each]
    assert told in faults[0]
    text = done.stderr + "".join(each.stdout + each.stderr for each in shown[:4])
    assert not any(each.startswith("distrun: it succeeded") for each in text.splitlines())
    assert not set(text) & set("\x1b\x07\u202e")


def test_doctor_names_a_host_that_does_not_answer_in_time(
    run_attacked: Callable[..., Any],
) -> None:
    """Its agent lives, and sends signs of life."""
    done = ended(run_attacked("without=PortsHeld", "doctor", start="5s"))
    said = " ".join((done.stdout + done.stderr).split())
    assert "evil cannot be prepared: its agent did not answer HoldPorts within 5 s" in said, said
    assert done.returncode == 69


def test_an_agent_that_exits_again_and_again_does_not_keep_the_job(
    distrun: Distrun, run_attacked: Callable[..., Any]
) -> None:
    launch = run_attacked("exits-again", "launch", "--no-preflight", chief="sleep 2; exit 0")
    assert ended(launch).returncode == 0
    assert distrun("kill").returncode == 2  # no job is running
