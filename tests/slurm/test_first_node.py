"""The first node of a submitted job dies before distrun has written anything."""

from __future__ import annotations

from harness.command import Distrun, recorded_events
from harness.slurm import Cluster
from harness.slurm_fixtures import Submit, WriteSlurmSpec
from harness.waiting import wait_until


def test_a_job_whose_first_node_dies_at_once_runs_on_other_nodes_or_says_so(
    submit: Submit, slurm: Cluster, slurm_spec: WriteSlurmSpec, distrun: Distrun
) -> None:
    ids = {}
    for requeue in (True, False):
        begun = distrun.cwd / f"begun-{requeue}"
        # Only the first time.
        setup = [f"[ -e {begun} ] || {{ touch {begun}; sleep 60; }}"]
        keys = {"requeue": requeue, "setup": setup, "options": {"nodelist": "h1"}}
        if requeue:
            keys["options"] = {}
        ids[requeue] = submit(slurm_spec("echo done", workers=1, slurm=keys))
        wait_until(begun.exists)
    slurm.power_off(slurm.nodes[0])
    # Slurm would find it out after SlurmdTimeout.
    slurm.run("scontrol", "update", "nodename=h1", "state=down", "reason=died")
    distrun.checked("wait", ids[True])
    waited = distrun("wait", ids[False])
    assert waited.returncode == 69
    assert "Slurm marked the node as failed" in waited.stderr
    job = distrun.status(ids[True])
    assert [task["host"] for task in job["tasks"]] != ["h1"]
    kinds = [event["event"] for event in recorded_events(distrun, ids[False])]
    assert kinds == ["JobQueued"]
