"""Jobs inside an allocation: on its nodes, with what Slurm gave of each, and when one dies."""

import json
import os
import re
from pathlib import Path

from harness.command import Distrun, recorded_events
from harness.processes import captured
from harness.requirements import need_tensorflow
from harness.slurm import Cluster
from harness.slurm_fixtures import InAllocation, WriteSlurmSpec
from harness.waiting import wait_until

SHOW = """\
import os, sys
names = ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_CONFIG")
print(*(os.environ[name] for name in names[:3]), __file__, os.environ[names[3]], sep="|")
"""


def test_tasks_run_on_all_nodes_with_what_slurm_gave_and_the_programs_files(
    slurm: Cluster, in_allocation: InAllocation, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    """Two on each node share its GPUs. One node does not see the files here, and is sent them."""
    folder, other = distrun.cwd / "program", distrun.cwd / "other"
    for each in (folder, other):
        each.mkdir()
        each.joinpath("train.py").write_text(SHOW)
    slurm.nodes[1].cover(folder, other)
    spec = slurm_spec("", workers=4, program={"script": "program/train.py"})
    launch = in_allocation(["-N2", "-c2", "--gres=gpu:2"], "launch", spec)
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    rows = sorted(line.partition(" | ")[2].split("|") for line in out.splitlines())
    assert [row[:3] for row in rows] == [
        ["h1", "0", "1"], ["h1", "1", "1"], ["h2", "0", "1"], ["h2", "1", "1"],
    ]  # fmt: skip
    assert [row[3] == f"{folder}/train.py" for row in rows] == [True, True, False, False]
    clusters = [json.loads(row[4])["cluster"] for row in rows]
    assert clusters == [clusters[0]] * 4
    addresses = [each.rpartition(":")[0] for each in clusters[0]["worker"]]
    assert sorted(each.rpartition(".")[2] for each in addresses) == ["1", "1", "2", "2"]
    events = recorded_events(distrun)
    assert [each["host"] for each in events if each["event"] == "Synced"] == ["h2"]
    ready = [each for each in events if each["event"] == "HostReady"]
    assert {each["host"]: (each["cores"], each["kind"]) for each in ready} == {
        "h1": (2, "srun"),
        "h2": (2, "srun"),
    }


def test_run_with_auto_takes_all_nodes(in_allocation: InAllocation, distrun: Distrun) -> None:
    script = 'echo "node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES in=$PWD"'
    launch = in_allocation(["-N3"], "run", "-n", "auto", "sh", "-c", script)
    out, err = launch.communicate(timeout=60)
    assert launch.returncode == 0, err
    # No GPU was asked for, and the machine's are not used.
    assert sorted(out.splitlines()) == [
        f"worker:{n} | node=h{n + 1} gpus=-1 in={distrun.cwd}" for n in range(3)
    ]


def wait_for_starts(distrun: Distrun, count: int) -> None:
    wait_until(lambda: distrun("events").stdout.count(" started (pid ") >= count, what="starts")


def test_daemons_of_slurm_that_die_cost_nothing_and_a_spare_takes_over_for_a_node(
    slurm: Cluster, in_allocation: InAllocation, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    gate = distrun.cwd / "gate"
    wait = f"echo up; while [ ! -e {gate} ]; do sleep 0.1; done; echo through"
    keys = {"restart": {"max": 1, "backoff": "10ms"}, "timeouts": {"link": "10s"}}
    launch = in_allocation(["-N3", "--no-kill"], "launch", slurm_spec(wait, spares=1, **keys))
    wait_for_starts(distrun, 2)
    slurm.stop_slurmctld()
    slurm.kill_slurmd(slurm.nodes[0])
    slurm.start_slurmctld()
    slurm.start_slurmd(slurm.nodes[0])
    wait_until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-o", "%T", check=False), 30.0)
    assert [each["attempt"] for each in distrun.status()["tasks"]] == [0, 0]

    slurm.power_off(slurm.nodes[1])
    wait_for_starts(distrun, 4)  # both, in a new group
    gate.touch()
    out, said = launch.communicate(timeout=60)
    assert launch.returncode == 0, said
    assert out.count("through") == 2
    assert "h2 is lost: no sign of life for 10 s" in distrun.asked("events")


PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
# Python without the program: tests/e2e trains it.
STARTS = """\
import os, sys
if sys.orig_argv[1].endswith("mnist/main.py"):
    print(f"on {os.environ['SLURMD_NODENAME']}:", *sys.orig_argv[2:], flush=True)
    os._exit(0)
"""


def test_three_commands_lead_to_two_workers_on_two_nodes(slurm: Cluster, distrun: Distrun) -> None:
    need_tensorflow()  # which the nodes are asked for
    found = re.search(r"<!-- run by: tests/slurm/test_allocation.py -->\n```sh\n(.*?)```", *(
        PAGE.read_text(), re.DOTALL
    ))  # fmt: skip
    assert found is not None
    assert len(found[1].splitlines()) == 3
    folder = distrun.write_tool()
    (folder / "sitecustomize.py").write_text(STARTS)
    paths = {name: f"{folder}{os.pathsep}{os.environ[name]}" for name in ("PATH", "PYTHONPATH")}
    done = captured(
        ["bash", "-euc", found[1]], cwd=distrun.cwd, env={**os.environ, **paths}, timeout=240
    )
    assert done.returncode == 0, done.stderr
    arguments = "--epochs 3 --dataset synthetic --epochs 1 --steps-per-epoch 20"
    assert f"worker:1 | on h2: {arguments}" in done.stdout.splitlines()
    job = distrun.status()
    assert (job["name"], job["state"]) == ("mnist", "succeeded")
    assert [task["host"] for task in job["tasks"]] == ["h1", "h2"]
