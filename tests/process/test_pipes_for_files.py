"""A named pipe in the place of a job's file: no command waits for its writer."""

from __future__ import annotations

import os

from harness.command import Distrun
from harness.waiting import SOON

NAMES = ("plan.json", "spec.json", "spec.yaml", "batch.json", "events.jsonl")


def test_no_command_waits_for_a_pipe(distrun: Distrun) -> None:
    assert distrun.launch("exit 0", workers=1).returncode == 0
    (folder,) = (distrun.home / "jobs").iterdir()
    for path in (folder / name for name in NAMES):
        text = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        for command in (["status"], ["ps"], ["events"], ["logs"], ["report", "-o", "-"]):
            done = distrun(*command, timeout=SOON)
            assert "Traceback" not in done.stderr, (path.name, command)
        done = distrun("bundle", "-o", "-", text=False, timeout=SOON)
        assert b"Traceback" not in done.stderr
        path.unlink()
        if text is not None:
            path.write_bytes(text)
