"""A named pipe in the place of a job's file: no command waits for its writer."""

from __future__ import annotations

import os

import pytest

from harness.command import Distrun
from harness.waiting import SOON


@pytest.mark.parametrize(
    "name", ["plan.json", "spec.json", "spec.yaml", "batch.json", "events.jsonl"]
)
def test_no_command_waits_for_a_pipe(distrun: Distrun, name: str) -> None:
    assert distrun.launch("exit 0", workers=1).returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for command in (["status"], ["ps"], ["events"], ["logs"], ["report", "-o", "-"]):
        done = distrun(*command, timeout=SOON)
        assert "Traceback" not in done.stderr, command
    done = distrun("bundle", "-o", "-", text=False, timeout=SOON)
    assert b"Traceback" not in done.stderr
