"""Jobs inside an allocation: on its nodes, with what Slurm gave of each."""

from __future__ import annotations

import json
from pathlib import Path

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import InAllocation, WriteSlurmSpec

SHOW = """\
echo "node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES threads=$OMP_NUM_THREADS folder=$PWD"
echo "$TF_CONFIG"
"""


def test_two_tasks_run_on_two_nodes_with_what_slurm_gave_them(
    in_allocation: InAllocation, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    launch = in_allocation(["-N2", "-c2", "--gres=gpu:1"], "launch", slurm_spec(SHOW))
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    where = f"folder={distrun.cwd}"
    assert f"worker:0 | node=h1 gpus=0 threads=2 {where}" in out
    assert f"worker:1 | node=h2 gpus=0 threads=2 {where}" in out
    clusters = [
        json.loads(line.split("|")[1])["cluster"] for line in out.splitlines() if "{" in line
    ]
    assert clusters[0] == clusters[1]
    addresses = [each.rpartition(":")[0] for each in clusters[0]["worker"]]
    assert [each.rpartition(".")[2] for each in addresses] == ["1", "2"]
    ready = [each for each in recorded_events(distrun) if each["event"] == "HostReady"]
    assert {each["host"]: (each["cores"], each["kind"]) for each in ready} == {
        "h1": (2, "srun"),
        "h2": (2, "srun"),
    }


def test_run_with_auto_takes_all_nodes(in_allocation: InAllocation, tmp_path: Path) -> None:
    script = tmp_path / "show.sh"
    script.write_text(f"#!/bin/sh\n{SHOW}")
    script.chmod(0o755)
    launch = in_allocation(["-N3"], "run", "-n", "auto", "./show.sh")
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    shown = sorted(line.partition("folder")[0] for line in out.splitlines() if "node=" in line)
    # No GPU was asked for, and the machine's are not used.
    assert shown == [f"worker:{n} | node=h{n + 1} gpus=-1 threads=1 " for n in range(3)]


def test_outside_of_an_allocation_the_error_names_submit(
    slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec
) -> None:
    launched = distrun("launch", slurm_spec(SHOW))
    assert launched.returncode == 65
    assert "this is no Slurm allocation; queue the job with `distrun submit`" in launched.stderr
    assert distrun("run", "-n", "auto", "true").returncode == 65


def test_tasks_on_one_node_share_the_gpus_that_slurm_gave(
    in_allocation: InAllocation, slurm_spec: WriteSlurmSpec
) -> None:
    launch = in_allocation(["-N1", "-c2", "--gres=gpu:2"], "launch", slurm_spec(SHOW))
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    assert "worker:0 | node=h1 gpus=0 threads=1" in out
    assert "worker:1 | node=h1 gpus=1 threads=1" in out


def test_only_a_node_that_sees_other_files_is_sent_the_programs_own(
    slurm: Cluster, in_allocation: InAllocation, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    folder, other = distrun.cwd / "program", distrun.cwd / "other"
    for each in (folder, other):
        each.mkdir()
        each.joinpath("train.py").write_text("print('from', __file__)")
    slurm.nodes[1].cover(folder, other)
    spec = slurm_spec("", program={"script": "program/train.py"})
    launch = in_allocation(["-N2"], "launch", spec)
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    assert f"worker:0 | from {folder}/train.py" in out
    assert "worker:1 | from /" in out
    assert f"worker:1 | from {folder}" not in out
    synced = [each for each in recorded_events(distrun) if each["event"] == "Synced"]
    assert [each["host"] for each in synced] == ["h2"]
