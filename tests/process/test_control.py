"""What commands ask of a job's supervisor, where that is slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distrun import control
from distrun.errors import InternalError
from distrun.jobstore import JobFolder
from harness.command import Distrun
from harness.processes import has_socket
from harness.values import not_none
from harness.waiting import wait_until

# Holds a job's lock and does not listen, as a supervisor about to end does, until its input ends.
ENDING = """
import sys
from pathlib import Path
from distrun import jobstore
jobstore.create(jobstore.JobFolder(Path(sys.argv[1])), b"name: x\\n")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ends", [True, False])
def test_a_supervisor_that_is_slow_to_end_is_waited_for_and_one_that_hangs_is_not(
    ends: bool, tmp_path: Path
) -> None:
    folder = JobFolder(tmp_path / "jobs" / "job-1")
    supervisor = subprocess.Popen(
        [sys.executable, "-c", ENDING, os.fspath(folder.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    now = 0.0

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 6.0
        if ends:
            supervisor.communicate()

    def connect() -> object:
        return control.connect(folder, clock=lambda: now, sleep=sleep)

    try:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"ready\n"
        if ends:
            assert connect() is None
        else:
            with pytest.raises(InternalError, match="does not answer"):
                connect()
    finally:
        if supervisor.poll() is None:
            supervisor.communicate()


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
