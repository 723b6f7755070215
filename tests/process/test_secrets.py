"""What comes through pass_env is seen by the tasks and by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

CANARY = "canary-5e2c81f9d7"


def command_lines() -> bytes:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", pid, "cmdline").read_bytes())
        except OSError:
            continue
    return b"\n".join(found)


def test_a_passed_value_is_in_no_file_and_no_output(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_VALUE", CANARY)
    program = {
        "command": ["sh", "-c", 'printf %s "$CANARY_VALUE" > got; echo up; exec sleep 600'],
        "pass_env": ["CANARY_VALUE"],
    }
    spec = distrun.write_spec("", workers=1, program=program, tensorboard={"logdir": "logs"})
    said = [distrun("plan", spec), distrun("plan", spec, "--json"), distrun("validate", spec)]
    job_id = distrun.detached("", workers=1, program=program, tensorboard={"logdir": "logs"})
    wait_until(
        lambda: (distrun.cwd / "got").is_file() and (distrun.cwd / "got").read_text(), timeout=30
    )
    assert (distrun.cwd / "got").read_text() == CANARY
    assert CANARY.encode() not in command_lines()
    said += [distrun("ps", "--json"), distrun("status"), distrun("status", "--json")]
    assert distrun("kill", job_id).returncode == 0
    said += [distrun("events", "--json"), distrun("events"), distrun("logs"), distrun("status")]
    assert all(done.returncode == 0 for done in said)
    assert all(CANARY not in done.stdout + done.stderr for done in said)
    assert "CANARY_VALUE" in said[0].stdout
    files = [path for path in distrun.home.rglob("*") if path.is_file()]
    assert {"plan.json", "events.jsonl", "supervisor.log"} <= {path.name for path in files}
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


def test_a_failed_job_does_not_tell_it_either(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_VALUE", CANARY)
    program = {"command": ["no-such-program"], "pass_env": ["CANARY_VALUE"]}
    done = distrun.launch("", program=program)
    assert done.returncode not in (0, 70)
    assert CANARY not in done.stdout + done.stderr
    assert "no-such-program" in done.stderr
    files = [path for path in distrun.home.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
