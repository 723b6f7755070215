"""The bundled job without a launcher: what it refuses, and the signals at its start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from harness.processes import captured
from harness.training import MAIN, tf_config
from harness.waiting import wait_until


def refused(code: int, *argv: str, **options: Any) -> str:
    """Run the job, which is to exit with that code; the one line that it says."""
    done = captured([sys.executable, str(MAIN), *argv], **options)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    return str(done.stderr)


def test_what_cannot_work_is_told_in_one_line_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused(2, "--summary-dir", "file/saved", cwd=tmp_path)
    assert said == "error: nothing can be written to file/saved (Not a directory)\n"
    said = refused(65, "--data-dir", str(tmp_path))
    assert said.startswith(f"error: no mnist in {tmp_path}")
    said = refused(2, "--strategy", "parameter_server", env={**os.environ, **tf_config()})
    assert "parameter_server needs a chief, workers and ps" in said
    evaluator = tf_config(task={"type": "evaluator", "index": 0})
    said = refused(2, "--strategy", "multi_worker_mirrored", env={**os.environ, **evaluator})
    assert "give all tasks the same --checkpoint-dir" in said


SCRIPT = """
import sys
from mnist_job.launcher import SigtermWatch

guard = SigtermWatch()
guard.act = lambda: print("told to end", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
# Its thread may be printing still, and Python cannot end amid that.
guard.end()
"""


def test_a_stop_and_a_continue_are_no_sigterm() -> None:
    command = [sys.executable, "-c", SCRIPT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=MAIN.parent, text=True, **pipes) as job:  # type: ignore[call-overload]

        def answer() -> str:
            job.stdin.write("goes on\n")
            job.stdin.flush()
            return str(job.stdout.readline())

        assert answer() == "goes on\n"
        job.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() > stopped + 0.3)
        job.send_signal(signal.SIGCONT)
        assert answer() == "goes on\n"
        job.send_signal(signal.SIGTERM)
        assert job.stdout.readline() == "told to end\n"
        job.stdin.close()
        assert job.wait(60) == 0
