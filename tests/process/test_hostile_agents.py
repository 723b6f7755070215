"""A hostile agent in a real job: its host fails, the other host goes on, every command works."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun, WriteSpec

SSH = Path(__file__).parent / "programs" / "hostile_ssh.py"


@pytest.fixture
def launch_attacked(
    distrun: Distrun, write_spec: WriteSpec, tmp_path: Path
) -> Callable[[str, str], Any]:
    """Launch a job whose evaluator is on the host `evil`, with an attack and the chief's script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SSH}" "$@"\n')
    ssh.chmod(0o755)

    def launch(attack: str, chief: str) -> Any:
        script = (
            f"case $DISTRUN_TASK in chief:0) {chief};; evaluator:0) sleep 1000;; "
            "*) exec sleep 1000;; esac"
        )
        spec = write_spec(
            script,
            strategy="parameter_server",
            cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
            hosts=[{"name": "good", "slots": 3}, {"name": "evil", "slots": 1}],
            placement="pack",
            timeouts={"link": "20s"},
            program={"command": ["sh", "-c", script], "sync": "off", "workdir": str(tmp_path)},
        )
        env = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "ATTACK": attack,
        }
        return distrun("launch", "--no-preflight", spec, env=env)

    return launch


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        ("infinite-number", "not a message of this protocol"),
        ("text-for-a-number", "attempt is '0'"),
        ("time", "at is 1e+300"),
        ("surrogate", "task is"),
        ("newline", "no task of this host"),
        ("unknown-task", "worker:7, which is no task of this host"),
        ("foreign-exit", "chief:0, which is no task of this host"),
        ("own-words", "distrun: it succeeded"),
        ("hello", "Hello"),
        ("claims-4-gib", "4294967295 bytes"),
        ("flood", "not a message of this protocol"),
    ],
)
def test_an_attack_is_told_and_the_job_goes_on(
    distrun: Distrun, launch_attacked: Callable[[str, str], Any], attack: str, told: str
) -> None:
    done = launch_attacked(attack, "sleep 3; echo trained; exit 0")
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
