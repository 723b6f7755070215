"""A child process that a signal kills: what its program says, or its silence, is an echo."""

from __future__ import annotations

from typing import Any

import pytest

from distrun.agent.linux import child_deaths
from harness.command import Distrun


@pytest.fixture(autouse=True)
def _told_by_the_kernel() -> None:
    kernel = child_deaths.open_socket()
    if kernel is None:
        pytest.skip("the kernel does not tell this process of killed ones")
    kernel.close()


POOL = """\
import multiprocessing, os
def die(number):
    if number == 5 and os.environ["DISTRUN_TASK"] == "worker:1":
        os.kill(os.getpid(), 9)
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        pool.map(die, range(10), chunksize=1)
"""
CHILD = """\
import os, subprocess, sys, time
if os.environ["DISTRUN_TASK"] == "worker:0":
    time.sleep(20)
done = subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), {0})"])
{1}
"""


def run(distrun: Distrun, text: str, **keys: Any) -> str:
    (distrun.cwd / "own.py").write_text(text)
    done = distrun.launch("", program={"script": "own.py"}, **keys)
    assert done.returncode, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHILD.format(9, "done.check_returncode()"), "SIGKILL (killed)"),
        (CHILD.format(11, "sys.exit(1)"), "SIGSEGV (crash)"),
        (POOL, "SIGKILL (killed)"),
    ],
    ids=["an error", "no word", "a stall"],
)
def test_the_child_is_named_with_its_signal(text: str, said: str, distrun: Distrun) -> None:
    """Also where what follows from its death is an exit without a word, or a stall."""
    told = run(distrun, text, timeouts={"stall": "2s"} if text == POOL else {})
    assert "worker:1 lost a child process: process " in told
    assert f" was killed by {said}" in told


def test_a_child_that_is_ended_does_not_hide_another_error(distrun: Distrun) -> None:
    assert "failed with KeyError: 'lr'" in run(distrun, CHILD.format(9, "{}['lr']"))
