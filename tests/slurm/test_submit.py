"""`distrun submit`: what it refuses, what it queues, and what the login node sees of it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.command import Distrun
from harness.slurm import Cluster
from harness.slurm_fixtures import WriteSlurmSpec
from harness.waiting import wait_until


def test_a_submitted_job_is_seen_from_the_login_node(
    slurm: Cluster, distrun: Distrun, slurm_spec: WriteSlurmSpec, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    spec = slurm_spec(f"echo on $SLURMD_NODENAME; while [ ! -e {gate} ]; do sleep 0.1; done")
    submitted = distrun("submit", spec)
    assert submitted.returncode == 0, submitted.stderr
    job_id = submitted.stdout.strip()
    print(submitted.stderr)
    print((distrun.home / "jobs" / job_id / "batch.sh").read_text())

    def running() -> bool:
        status = json.loads(distrun("status", job_id, "--json").stdout)["job"]
        return status["state"] == "running"

    try:
        wait_until(running, 30)
    finally:
        print((distrun.home / "jobs" / job_id / "batch.log").read_text())
        print(distrun("events", job_id).stdout)
        print(distrun("status", job_id))
    gate.touch()
    waited = distrun("wait", job_id)
    print(waited.stderr)
    print((distrun.home / "jobs" / job_id / "batch.log").read_text())
    assert waited.returncode == 0
