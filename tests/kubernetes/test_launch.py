"""A job whose hosts are pods, from its launch to the removal of everything."""

from harness import tfjobs
from harness.command import Distrun
from harness.kubernetes import Cluster
from harness.pods import PodSpec
from harness.waiting import wait_until


def test_a_converted_tfjob_runs_and_its_pods_meet(pods: Cluster, distrun: Distrun) -> None:
    """The pods are gone when `launch` returns."""
    (distrun.cwd / "tfjob.yaml").write_text(tfjobs.manifest("local/tensorflow:1"))
    distrun.checked("import", "tfjob.yaml", "-o", "job.yaml")
    assert sorted(distrun.checked("launch", "job.yaml").stdout.splitlines()) == tfjobs.OUTPUT
    assert not pods.objects()


def test_what_keeps_pods_from_running(pods: Cluster, distrun: Distrun, pod_spec: PodSpec) -> None:
    """Other words: tests/unit/test_kubernetes.py."""
    missing = distrun("launch", pod_spec("true", kubernetes={"image": "local/none:1"}))
    assert missing.returncode == 69
    assert "the image local/none:1 cannot be used: ErrImageNeverPull" in missing.stderr
    pods.kubectl("create", "quota", "few", "--hard=pods=0")
    # The kubelet removes a pod that never ran after a minute.
    wait_until(lambda: "0/0" in pods.kubectl("get", "quota", "few"), 150, "the quota counts")
    refused = distrun("launch", pod_spec("true", timeouts={"start": "20s"}))
    assert refused.returncode in (69, 75)
    assert "exceeded quota: few" in refused.stderr


def test_the_manifest_of_a_plan(pods: Cluster, pod_spec: PodSpec, distrun: Distrun) -> None:
    settings = {"cpus": 1, "memory": "1Gi", "gpus": 1, "priority_class": "low", "queue": "q"}
    spec = pod_spec("true", kubernetes=settings, timeouts={"run": "1h"})
    manifest = distrun.cwd / "manifest.yaml"
    manifest.write_text(distrun("launch", "--dry-run", spec).stdout)
    said = pods.kubectl("apply", "--dry-run=server", "--validate=true", "-f", str(manifest))
    assert "created (server dry run)" in said
    assert not pods.objects()
    done = distrun.checked("launch", pod_spec("df /dev/shm | tail -1", workers=1))
    assert "shm 65536" not in " ".join(done.stdout.split())
