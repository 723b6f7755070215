"""A child process that a signal kills: what its program says, or its silence, is an echo."""

from __future__ import annotations

import sys

import pytest

from distrun.agent.linux import child_deaths
from harness.command import Distrun


@pytest.fixture(autouse=True)
def _told_by_the_kernel() -> None:
    kernel = child_deaths.open_socket()
    if kernel is None:
        pytest.skip("the kernel does not tell this process of killed ones")
    kernel.close()


def code(imports: str, body: str) -> str:
    return (
        f"import os, signal, sys, time\n{imports}\n"
        "def die(i):\n"
        "    if i == 5 and os.environ['DISTRUN_TASK'] == 'worker:1':\n"
        "        os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    return i\n"
        f"if __name__ == '__main__':\n    {body}\n"
    )


POOL = code(
    "from concurrent.futures import ProcessPoolExecutor",
    "with ProcessPoolExecutor(2) as p: print(sum(p.map(die, range(10))))",
)
OLD_POOL = code(
    "from multiprocessing import Pool",
    "with Pool(2) as p: print(sum(p.map(die, range(10), chunksize=1)))",
)
RUN = code(
    "import subprocess",
    "subprocess.run([sys.executable, '-c', f'import os; os.kill(os.getpid(), {sys.argv[1]})'], "
    "check=True) if os.environ['DISTRUN_TASK'] == 'worker:1' else time.sleep(20)",
)
SILENT = RUN.replace("check=True)", "check=False), sys.exit(1)")


def run(text: str, number: int, distrun: Distrun, **keys: object) -> str:
    script = distrun.cwd / "own.py"
    script.write_text(text)
    command = f"exec {sys.executable} {script} {number}"
    done = distrun("launch", distrun.write_spec(command, **keys))  # type: ignore[arg-type]
    assert done.returncode, done.stderr
    return str(done.stderr)


@pytest.mark.parametrize(
    ("text", "number", "kind"),
    [(POOL, 9, "killed"), (RUN, 11, "crash"), (SILENT, 9, "killed"), (OLD_POOL, 9, "killed")],
    ids=["pool", "subprocess", "no word", "stall"],
)
def test_the_child_is_named_with_its_signal(
    text: str, number: int, kind: str, distrun: Distrun
) -> None:
    """Also where what follows from its death is an exit without a word, or a stall."""
    keys = {"timeouts": {"stall": "2s"}} if text == OLD_POOL else {}
    said = run(text, number, distrun, **keys)
    name = {9: "SIGKILL", 11: "SIGSEGV"}[number]
    assert "worker:1 lost a child process: process " in said
    assert f" was killed by {name} ({kind})" in said


def test_a_stall_after_a_thread_has_failed_is_its_echo(distrun: Distrun) -> None:
    text = (
        "import threading, time\n"
        "def read(): raise ValueError('bad record')\n"
        "threading.Thread(target=read).start()\ntime.sleep(60)\n"
    )
    said = run(text, 0, distrun, timeouts={"stall": "2s"})
    assert "failed with ValueError: bad record, at own.py:2 in read (exception)" in said


@pytest.mark.parametrize("number", [15, 9])
def test_a_child_that_is_ended_does_not_hide_another_error(number: int, distrun: Distrun) -> None:
    text = RUN.replace("check=True)", "check=False), {}['lr']")
    assert "failed with KeyError: 'lr'" in run(text, number, distrun)
