"""Which of several pytest processes runs which test, and when."""

import re

from xdist.scheduler import LoadScopeScheduling

TRAINING = {
    "examples that train": (
        *("tests/e2e/test_examples.py", "tests/e2e/test_first_hour.py"),
        "tests/process/test_readme.py::test_shown_commands_do_what_is_shown",
    ),
    "training": ("tests/e2e/", "tests/ssh/test_sync.py::test_the_bundled_job_learns"),
}
"""Tests that use a process that has imported TensorFlow. That takes 6 s of CPU, and training takes
a core and more: two processes run them, about as long, beside others that mostly wait."""
GROUPS = {
    **TRAINING,
    "hosts that return": ("tests/ssh/test_lost_hosts.py", "tests/ssh/test_sync.py"),
    "hosts": ("tests/ssh/",), "slurm": ("tests/slurm/",), "kubernetes": ("tests/kubernetes/",),
    "wheel": ("tests/process/test_wheel.py",),
    "a page in a browser": ("tests/process/test_report_in_a_browser.py",),
    "parsed code": ("tests/unit/test_architecture.py",),
}  # fmt: skip
"""Tests of one process each: what they share takes long to make. The first group counts."""
_GROUP_OF_WAY = {"ssh": "hosts that return", "srun": "slurm", "kubernetes": "kubernetes"}
FIRST = (
    *(path for paths in TRAINING.values() for path in paths),
    *("tests/unit/test_style.py", "tests/ssh/", "tests/slurm/", "tests/kubernetes/"),
    *("tests/reach/", "tests/process/test_wheel.py", "tests/process/"),
)
"""The long tests come first, so that no process ends alone with one of them."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each process one test after another, and those that share something to one process."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/reach/"):
            way = re.split(r"\W", nodeid.partition("[")[2])
            return next((_GROUP_OF_WAY[each] for each in way if each in _GROUP_OF_WAY), nodeid)
        groups = (name for name, paths in GROUPS.items() if nodeid.startswith(paths))
        return next(groups, nodeid)


def rank(nodeid: str) -> int:
    """Where a test stands in the order of all: those with a low number come first."""
    return next((at for at, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))
