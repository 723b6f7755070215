"""A job whose hosts are pods, from its launch to the removal of everything."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from harness.command import Distrun, Status
from harness.kubernetes import Cluster
from harness.waiting import wait_until


def _holds_nothing(pods: Cluster) -> bool:
    return not pods.objects()


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
    wait_until(lambda: _holds_nothing(pods), what="no object of the job is left")


def test_nothing_is_left_if_the_supervisor_is_killed(
    pods: Cluster, distrun: Distrun, status: Status, pod_spec: Callable[..., Path]
) -> None:
    """`kill` and `resume` find nothing any more, and say so."""
    started = distrun("launch", "-d", pod_spec("sleep 300"))
    assert started.returncode == 0, started.stderr
    psutil.Process(status()["supervisor_pid"]).send_signal(signal.SIGKILL)

    wait_until(lambda: _holds_nothing(pods), what="no object of the job is left")
    killed = distrun("kill", started.stdout.strip())

    assert killed.returncode == 0, killed.stderr
    assert "nothing is left on pod1, pod2" in killed.stderr


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
    wait_until(lambda: _holds_nothing(pods), what="no object of the jobs is left")


def test_the_manifest_of_a_plan_is_valid(
    pods: Cluster, distrun: Distrun, pod_spec: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {"cpus": 1, "memory": "1Gi", "gpus": 1, "priority_class": "low", "queue": "q"}
    spec = pod_spec("true", kubernetes=settings, timeouts={"run": "1h"})
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(distrun("launch", "--dry-run", spec).stdout)
    said = pods.kubectl("apply", "--dry-run=server", "--validate=true", "-f", str(manifest))
    assert "created (server dry run)" in said
    assert not pods.objects()
