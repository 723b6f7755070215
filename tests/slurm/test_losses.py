"""Nodes and steps that Slurm takes away, and daemons of Slurm that die, while a job runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.slurm import Cluster
from harness.slurm_fixtures import InAllocation, WriteSlurmSpec
from harness.waiting import wait_until

WAIT = 'echo up; while [ ! -e "$GATE" ]; do sleep 0.1; done; echo through'


def wait_for_starts(distrun: Distrun, count: int) -> None:
    """Until so many attempts of tasks have started in all."""

    def are_started() -> bool:
        events = distrun("events", "--json").stdout
        return str(events).count('"TaskStarted"') >= count

    wait_until(are_started, what=f"{count} starts")


def ended(launch: subprocess.Popen[str]) -> str:
    """What a launch command said on standard error until its end."""
    return launch.communicate(timeout=60)[1]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that lets tasks that WAIT end. Slurm passes the variable on."""
    path = tmp_path / "gate"
    monkeypatch.setenv("GATE", str(path))
    return path


def test_a_cancelled_job_says_so(
    slurm: Cluster,
    in_allocation: InAllocation,
    slurm_spec: WriteSlurmSpec,
    distrun: Distrun,
    gate: Path,
) -> None:
    launch = in_allocation(["-N2"], "launch", slurm_spec(WAIT))
    wait_for_starts(distrun, 2)
    slurm.run("scancel", slurm.run("squeue", "-h", "-o", "%i"))
    said = ended(launch)
    assert launch.returncode == 69
    assert re.search(r"cause .*it was cancelled in Slurm \(scancel\): job \d+ or one of its", said)
    assert "`distrun resume` continues it in another allocation" in said


def test_a_task_goes_on_although_the_daemons_of_slurm_die_and_come_back(
    slurm: Cluster,
    in_allocation: InAllocation,
    slurm_spec: WriteSlurmSpec,
    distrun: Distrun,
    gate: Path,
) -> None:
    launch = in_allocation(["-N2"], "launch", slurm_spec(WAIT))
    wait_for_starts(distrun, 2)
    slurm.stop_slurmctld()
    slurm.kill_slurmd(slurm.nodes[0])
    slurm.start_slurmctld()
    slurm.start_slurmd(slurm.nodes[0])
    wait_until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-o", "%T", check=False), 30.0)
    gate.touch()
    out, said = launch.communicate(timeout=60)
    assert launch.returncode == 0, said
    assert out.count("through") == 2


def test_a_node_that_dies_is_lost_and_a_spare_of_the_allocation_takes_over(
    slurm: Cluster,
    in_allocation: InAllocation,
    slurm_spec: WriteSlurmSpec,
    distrun: Distrun,
    gate: Path,
) -> None:
    keys = {"restart": {"max": 1, "backoff": "10ms"}, "timeouts": {"link": "6s"}}
    spec = slurm_spec(WAIT, spares=1, **keys)
    launch = in_allocation(["-N3", "--no-kill"], "launch", spec)
    wait_for_starts(distrun, 2)
    slurm.power_off(slurm.nodes[1])
    wait_for_starts(distrun, 4)  # both, in a new group
    gate.touch()
    said = ended(launch)
    assert launch.returncode == 0, said
    assert "h2 is lost: no sign of life for 6 s" in distrun("events").stdout


def test_a_process_that_needs_more_memory_than_slurm_gave(
    slurm: Cluster, in_allocation: InAllocation, slurm_spec: WriteSlurmSpec
) -> None:
    """slurmstepd's words are printed by the task itself: this kernel's memory is not confined."""
    words = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes"
    script = f'echo "{words}" >/proc/$AGENT/fd/2; kill -9 $AGENT; sleep 60'
    find = "AGENT=$(ps -o ppid= -p $$ | tr -d ' '); AGENT=$(ps -o ppid= -p $AGENT | tr -d ' ');"
    launch = in_allocation(["-N1"], "launch", slurm_spec(f"{find} {script}", workers=1))
    said = ended(launch)
    assert launch.returncode == 69
    assert "it needed more memory than job" in said
    assert "ask for more memory on each node (`slurm.mem_per_node`, or --mem)" in said
