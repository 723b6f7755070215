"""Fixtures of tests on Slurm: one cluster for all of them, as new for each."""

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness import slurm as clusters
from harness.command import Distrun, write_spec
from harness.requirements import shared
from harness.waiting import wait_until

InAllocation = Callable[..., "subprocess.Popen[str]"]
"""Starts `salloc OPTIONS distrun ARGUMENTS`, its output in pipes."""

WriteSlurmSpec = Callable[..., Path]
"""Writes a spec of `workers` on the allocation's nodes; more keys as keywords."""

Submit = Callable[..., str]
"""Runs `distrun submit ARGUMENTS`, and returns the job's id."""


@pytest.fixture(scope="session")
def cluster(kept_processes: set[int]) -> Iterator[clusters.Cluster]:
    yield from shared(clusters.Cluster, kept_processes, clusters.why_not(), "REQUIRE_SLURM_TESTS")


@pytest.fixture
def slurm(
    cluster: clusters.Cluster, distrun_home: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[clusters.Cluster]:
    """The cluster, as new; commands find it. What a test leaves there fails the test."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SQUEUE_")):
            monkeypatch.delenv(name)
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    yield cluster
    left = cluster.mend()
    if left:
        pytest.fail(f"left on the cluster by this test:\n{left}")


@pytest.fixture
def in_allocation(slurm: clusters.Cluster, distrun: Distrun) -> InAllocation:
    """Run distrun in an allocation: `in_allocation(["-N2"], "launch", spec)`."""

    def start(options: list[str], *arguments: Any) -> subprocess.Popen[str]:
        below = ("salloc", "--quiet", "--job-name=distrun", *options)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return distrun.start(*map(str, arguments), below=below, **pipes)

    return start


@pytest.fixture
def slurm_spec(tmp_path: Path) -> WriteSlurmSpec:
    """Write a spec whose workers, one a node, run a shell script."""

    return partial(write_spec, tmp_path, hosts="slurm")


@pytest.fixture
def submit(slurm: clusters.Cluster, distrun: Distrun) -> Submit:
    def run(*arguments: Any) -> str:
        return str(distrun.checked("submit", *map(str, arguments)).stdout.strip())

    return run


SAVES = """\
trap 'trap "" TERM; sleep 2; echo saved; exit 0' TERM
echo attempt $DISTRUN_ATTEMPT
[ $DISTRUN_ATTEMPT = 1 ] && exit
while true; do sleep 60 & wait; done
"""
"""It loops, since Slurm signals one process after another: `sleep` may end before the shell."""


def wait_for(distrun: Distrun, job_id: str, state: str) -> dict[str, Any]:
    """Wait until the login node shows a job in a state; return the job."""
    wait_until(lambda: distrun.status(job_id)["state"] == state, what=f"{job_id} is {state}")
    return distrun.status(job_id)
