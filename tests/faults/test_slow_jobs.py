"""Jobs that are slow for a known reason, and healthy ones: what `distrun profile` says of each.

The numbers depend on the time that tasks get: run it on a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.command import Distrun
from harness.requirements import AS_ROOT, skip
from harness.steps import training_program
from harness.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
CGROUPS = Path("/sys/fs/cgroup")
BURN = "import os\nos.sched_setaffinity(0, {0})\nwhile True: pass"


class Case(NamedTuple):
    """What a task does beside its steps: only worker:1 is slow, or with `by_all` every task."""

    obstacle: str
    kind: str | None
    code: str
    """In a loop, with `is_slow`."""
    step: str = "0.005"
    before: str = ""
    neighbours: int = 0
    """Programs that burn the first core."""


OWN = "more_of_a_kind"
SAVES = "def save_checkpoint(): time.sleep(0.1)"
LOADS = "def load_batch(): time.sleep(0.1)"
GENERATES = """\
def generate():
    while True:
        time.sleep(0.1)
        yield 1
batches = generate()"""
PRINTS = """\
def show():
    for n in range(9000):
        print(n, "x" * 99)"""
PINNED = "os.sched_setaffinity(0, {0} if is_slow else {1})"
LIMITED = 'if is_slow: open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))'
SLOW = {
    "saves": Case(OWN, "saving", "save_checkpoint()", before=SAVES),
    "loads": Case(OWN, "waiting for input", "load_batch()", before=LOADS),
    "generates": Case(OWN, "waiting for input", "next(batches)", before=GENERATES),
    "prints": Case(OWN, "printing", "show()", before=PRINTS),
    "logs": Case(OWN, "printing", 'for n in range(1500): logging.warning("x" * 99)'),
    "own Python": Case(OWN, "own Python", "prepare()", before="def prepare(): burn(0.05)"),
    "evaluates": Case(OWN, "evaluation", "evaluate()", before="def evaluate(): burn(0.05)"),
    "traces": Case(OWN, "tracing", "func_graph.func_graph_from_py_func(0.05)"),
    "more data": Case("longer_steps", None, "pass", step="0.05 if is_slow else 0.005"),
    "nice": Case("nice", None, "pass", before="if is_slow: os.nice(19)", neighbours=3),
    "neighbour": Case("busy_neighbour", None, "pass", before=PINNED, neighbours=3),
    "fewer cores": Case(
        *("fewer_cores", None, "pass", "0.05 / len(os.sched_getaffinity(0)) ** 2"),
        before="if is_slow: os.sched_setaffinity(0, {0})",
    ),
    "quota": Case("throttled", None, "pass", step="0.02", before=LIMITED),
}
HEALTHY = {
    "steps": ("pass", 2), "long steps": ("time.sleep(0)", 2), "one task": ("pass", 1),
    "all save": ("save()", 2), "all load": ("load_batch()", 2), "all evaluate": ("evaluate()", 2),
    "all print": ("show()", 2), "chief saves seldom": ("save_seldom()", 2),
}  # fmt: skip
FUNCTIONS = """\
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def save(): time.sleep(0.02)
def load_batch(): time.sleep(0.02)
def evaluate(): burn(0.01)
def show():
    for n in range(500): print(n)
last = time.time()
def save_seldom():
    global last
    if is_slow and time.time() - last > 1:
        time.sleep(0.02)
        last = time.time()
"""


def loop(code: str, step: str = "0.005", before: str = "", who: str = "is_slow") -> str:
    return (
        'is_slow = os.environ["DISTRUN_TASK"] == "worker:1"\n'
        f"{FUNCTIONS}{before}\n"
        f"while True:\n    execute.quick_execute({step})\n"
        f"    if {who}:\n{textwrap.indent(code, ' ' * 8)}\n"
    )


def profile(distrun: Distrun, workers: int) -> Any:
    wait_until(lambda: distrun("logs").stdout.count("trains") == workers, timeout=60)
    found = json.loads(distrun("profile", "--seconds", "4", "--json").stdout)
    distrun.checked("kill")
    return found


@pytest.fixture
def quota() -> Iterator[Path]:
    """A cgroup whose processes get a tenth of a core."""
    parent = CGROUPS / "cpu" if (CGROUPS / "cpu").is_dir() else CGROUPS
    limits = {"cpu.max": "10000 100000", "cpu.cfs_quota_us": "10000"}
    folder = parent / f"distrun-tests-{os.getpid()}"
    try:
        folder.mkdir()
        file = next(each for name in limits if (each := folder / name).exists())
        file.write_text(limits[file.name])
    except (OSError, StopIteration):
        with contextlib.suppress(OSError):
            folder.rmdir()
        skip("a quota needs a cgroup that can be changed", AS_ROOT)
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), timeout=20)
    folder.rmdir()


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


@pytest.mark.parametrize("case", SLOW.values(), ids=SLOW)
def test_what_makes_a_job_slow_is_named(
    case: Case, distrun: Distrun, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    script = training_program(tmp_path, loop(case.code, case.step, case.before))
    if case.obstacle == "throttled":
        script += f" {request.getfixturevalue('quota')}"
    with burning(case.neighbours):
        distrun.detached(script, workers=2)
        found = profile(distrun, 2)
    assert found["straggler"], found["tasks"]
    assert found["straggler"]["task"] == "worker:1"
    reasons = [(each["obstacle"], each["kind"]) for each in found["straggler"]["reasons"]]
    assert (case.obstacle, case.kind) in reasons, found


@pytest.mark.parametrize(("code", "workers"), HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of_a_healthy_job(
    code: str, workers: int, distrun: Distrun, tmp_path: Path
) -> None:
    distrun.detached(training_program(tmp_path, loop(code, "0.02", who="True")), workers=workers)
    found = profile(distrun, workers)
    assert found["straggler"] is None, found
    assert found["slow_link"] is None
