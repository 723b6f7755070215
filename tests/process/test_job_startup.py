"""SIGTERM while the bundled job starts: neither lost nor imagined."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil

from harness.values import not_none
from harness.waiting import wait_until

JOB = Path(__file__).parents[2] / "jobs" / "mnist"
SCRIPT = """
import sys
from mnist_job.preemption import SigtermWatch

guard = SigtermWatch()
guard.act = lambda: print("told to end", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
# Its thread may be printing still, and Python cannot end amid that.
guard.end()
"""
LONGER_THAN_A_LOOK = 0.3


def passed(moment: float) -> bool:
    return time.monotonic() > moment


def test_a_stop_and_a_continue_are_no_sigterm() -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=JOB, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with job:

        def answer() -> str:
            not_none(job.stdin).write("goes on\n")
            not_none(job.stdin).flush()
            return not_none(job.stdout).readline()

        assert answer() == "goes on\n"
        for _ in range(3):
            job.send_signal(signal.SIGSTOP)
            wait_until(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)
            stopped = time.monotonic()
            wait_until(partial(passed, stopped + LONGER_THAN_A_LOOK))
            job.send_signal(signal.SIGCONT)
            assert answer() == "goes on\n"
        job.send_signal(signal.SIGTERM)
        assert not_none(job.stdout).readline() == "told to end\n"
        not_none(job.stdin).close()
        assert job.wait(60) == 0
