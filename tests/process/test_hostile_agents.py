"""A hostile agent in a real job: its host fails, the other host goes on, every command works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

SSH = Path(__file__).parent / "programs" / "hostile_ssh.py"
SCRIPT = """
test $DISTRUN_TASK = chief:0 || exec sleep 1000
until test -e go; do sleep 0.05; done
echo trained
"""


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        ("foreign-exit", "chief:0, which is no task of this host"),
        ("own-words", "distrun: it succeeded"),
        ("claims-4-gib", "4294967295 bytes"),
    ],
)
def test_an_attack_is_told_and_the_job_goes_on(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch, attack: str, told: str
) -> None:
    """The evaluator is on the host `evil`."""
    ssh = distrun.cwd / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SSH}" "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    monkeypatch.setenv("XDG_STATE_HOME", str(distrun.cwd / "state"))
    monkeypatch.setenv("ATTACK", attack)
    spec = distrun.write_spec(
        "",
        strategy="parameter_server",
        cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
        hosts=[{"name": "good", "slots": 3}, {"name": "evil", "slots": 1}],
        placement="pack",
        timeouts={"link": "20s"},
        program={"command": ["sh", "-c", SCRIPT], "sync": "off", "workdir": str(distrun.cwd)},
    )
    pipe = subprocess.PIPE
    launch = distrun.start("launch", "--no-preflight", spec, stdout=pipe, stderr=pipe, text=True)
    wait_until(lambda: "evil cannot continue: " in distrun("events").stdout, timeout=60)
    (distrun.cwd / "go").touch()
    out, err = launch.communicate(timeout=90)
    assert launch.returncode == 0, err
    assert "chief:0     | trained" in out
    shown = [distrun(*args) for args in (("events",), ("status",), ("ps", "-a"), ("logs",))]
    shown += [distrun(command, "--json") for command in ("events", "status")]
    assert [each.returncode for each in shown] == [0] * 6
    faults = [each for each in shown[0].stdout.splitlines() if "evil cannot continue: " in each]
    assert told in faults[0]
    text = err + "".join(each.stdout + each.stderr for each in shown[:4])
    assert not any(each.startswith("distrun: it succeeded") for each in text.splitlines())
    assert not set(text) & set("\x1b\x07\u202e")
