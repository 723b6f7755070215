"""Commands that wait for a job whose record is removed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from harness.command import Distrun
from harness.processes import has_socket
from harness.values import not_none
from harness.waiting import wait_until


@pytest.mark.parametrize("command", [("wait",), ("status", "-w")])
def test_a_record_that_is_removed_while_a_command_waits(
    distrun: Distrun, command: tuple[str, ...]
) -> None:
    job_id = distrun.detached("until test -e go; do sleep 0.1; done", workers=1)
    folder = distrun.home / "jobs" / job_id
    waiting = distrun.start(*command, job_id, stderr=subprocess.PIPE)
    wait_until(lambda: has_socket(waiting.pid))
    shutil.rmtree(folder)
    (distrun.cwd / "go").touch()
    assert waiting.wait(60) == 69
    message = not_none(waiting.stderr).read().decode()
    assert f"the record of job {job_id} was removed" in message
    assert "its result is unknown" in message
    assert "died" not in message
