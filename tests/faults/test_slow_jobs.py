"""Jobs that are slow for a known reason, and healthy ones: what `distrun profile` says of each.

The numbers depend on the time that tasks get: run it on a machine that does nothing else.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.command import Distrun
from harness.programs import training_program
from harness.requirements import AS_ROOT, skip
from harness.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
CGROUPS = Path("/sys/fs/cgroup")
BURN = "import os\nos.sched_setaffinity(0, {0})\nwhile True: pass"


class Case(NamedTuple):
    """What holds up worker:1 alone; tests/unit/test_profile.py has what it may do itself."""

    obstacle: str
    step: str = "0.005"
    before: str = ""
    neighbours: int = 0
    """Programs that burn the first core."""


PINNED = "os.sched_setaffinity(0, {0} if is_slow else {1})"
LIMITED = 'if is_slow: open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))'
SLOW = {
    "more data": Case("longer_steps", step="0.05 if is_slow else 0.005"),
    "nice": Case("nice", before=f"{PINNED}\nif is_slow: os.nice(19)", neighbours=1),
    "neighbour": Case("busy_neighbour", before=PINNED, neighbours=3),
    "fewer cores": Case(
        *("fewer_cores", "0.05 / len(os.sched_getaffinity(0)) ** 2"),
        before="if is_slow: os.sched_setaffinity(0, {0})",
    ),
    "quota": Case("throttled", step="0.02", before=LIMITED),
}
SAVES_SELDOM = """\
    if is_slow and time.time() - last > 1:
        time.sleep(0.02)
        last = time.time()
"""
HEALTHY = {
    "steps": ("", 2), "one task": ("", 1), "all load": ("    time.sleep(0.02)\n", 2),
    "all print": ("    for n in range(500): print(n)\n", 2),
    "chief saves seldom": (SAVES_SELDOM, 2),
}  # fmt: skip


def loop(step: str, before: str = "", after: str = "") -> str:
    return (
        'is_slow = os.environ["DISTRUN_TASK"] == "worker:1"\n'
        f"{before}\nlast = time.time()\nwhile True:\n    execute.quick_execute({step})\n{after}"
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
    script = training_program(tmp_path, loop(case.step, case.before))
    if case.obstacle == "throttled":
        script += f" {request.getfixturevalue('quota')}"
    with burning(case.neighbours):
        distrun.detached(script, workers=2)
        found = profile(distrun, 2)
    assert found["straggler"], found["tasks"]
    assert found["straggler"]["task"] == "worker:1"
    reasons = [each["obstacle"] for each in found["straggler"]["reasons"]]
    assert case.obstacle in reasons, found


@pytest.mark.parametrize(("code", "workers"), HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_job_is_silent(code: str, workers: int, distrun: Distrun, tmp_path: Path) -> None:
    distrun.detached(training_program(tmp_path, loop("0.02", after=code)), workers=workers)
    found = profile(distrun, workers)
    assert found["straggler"] is None, found
    assert found["slow_link"] is None
