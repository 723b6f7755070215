"""A job whose hosts are pods, from its launch to the removal of everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness import tfjobs
from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.waiting import wait_until


def test_tasks_run_in_pods_and_find_each_other(
    pods: Cluster, distrun: Distrun, pod_spec: Callable[..., Path]
) -> None:
    """The pods are those of one Job, which is gone when `launch` returns."""
    done = distrun("launch", pod_spec("hostname; echo $TF_CONFIG; df /dev/shm | tail -1"))

    assert done.returncode == 0, done.stderr
    lines = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    assert len({line for line in lines if line.startswith("distrun-job-")}) == 2
    configurations = [json.loads(line) for line in lines if line.startswith("{")]
    workers = configurations[0]["cluster"]["worker"]
    assert sorted(each.rpartition(".")[0] for each in workers) == ["10.92.1", "10.92.2"]
    assert not any("shm 65536" in " ".join(line.split()) for line in lines)


def test_a_converted_tfjob_runs_in_pods(pods: Cluster, distrun: Distrun) -> None:
    (distrun.cwd / "tfjob.yaml").write_text(tfjobs.manifest("local/tensorflow:1"))
    distrun.checked("import", "tfjob.yaml", "-o", "job.yaml")
    done = distrun.checked("launch", "job.yaml")
    assert sorted(done.stdout.splitlines()) == tfjobs.OUTPUT
    assert not pods.objects()


def test_what_keeps_pods_from_running_is_told_in_the_words_of_kubernetes(
    pods: Cluster, distrun: Distrun, pod_spec: Callable[..., Path]
) -> None:
    missing = distrun("launch", pod_spec("true", kubernetes={"image": "local/none:1"}))
    wanted = {"cpus": 1000}
    unscheduled = distrun("launch", pod_spec("true", kubernetes=wanted, timeouts={"start": "8s"}))
    quota = json.dumps(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
         "spec": {"hard": {"pods": "0"}}}
    )  # fmt: skip
    pods.kubectl("create", "-f", "-", given=quota)
    wait_until(lambda: "0/0" in pods.kubectl("get", "quota", "few"), what="the quota counts")
    refused = distrun("launch", pod_spec("true", timeouts={"start": "8s"}))

    assert missing.returncode == 69
    assert "the image local/none:1 cannot be used: ErrImageNeverPull" in missing.stderr
    assert unscheduled.returncode in (69, 75)
    assert "0/2 nodes are available: 2 Insufficient cpu" in unscheduled.stderr
    assert refused.returncode in (69, 75)
    assert "exceeded quota: few" in refused.stderr


def test_the_manifest_of_a_plan_is_valid(
    pods: Cluster, pod_spec: Callable[..., Path], distrun: Distrun
) -> None:
    settings = {"cpus": 1, "memory": "1Gi", "gpus": 1, "priority_class": "low", "queue": "q"}
    spec = pod_spec("true", kubernetes=settings, timeouts={"run": "1h"})
    manifest = distrun.cwd / "manifest.yaml"
    manifest.write_text(distrun("launch", "--dry-run", spec).stdout)
    said = pods.kubectl("apply", "--dry-run=server", "--validate=true", "-f", str(manifest))
    assert "created (server dry run)" in said
    assert not pods.objects()
