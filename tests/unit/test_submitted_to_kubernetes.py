"""A job that Kubernetes holds: its manifests, its spec in the pod, and what its queue says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrun.kubernetes import batch_job, manifest, submission
from distrun.spec.loader import load
from distrun.spec.model import Spec

TEXT = """\
strategy: multi_worker_mirrored
cluster: {worker: 2}
hosts: kubernetes
kubernetes:
  image: i
  context: c
  cpus: 4
  gpus: 1
  queue: team
  pod:
    spec:
      nodeSelector: {pool: gpu}
      initContainers: [{name: first, image: i}]
      containers:
        - {name: beside, image: i}
        - {resources: {limits: {amd.com/gpu: 1}}, env: [{name: A, value: b}]}
program: {script: train.py, workdir: sub, args: [train.py]}
"""
NAME = "distrun-job-x"


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(TEXT)
    return load(tmp_path / "job.yaml", is_submitted=True)


def test_a_supervisor_needs_what_its_pods_need_but_their_resources(spec: Spec) -> None:
    job = manifest.make_supervisor(spec, "x", NAME)
    pod = job["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["containers"]] == ["distrun"]
    container = pod["containers"][0]
    assert "resources" not in container
    assert "initContainers" not in pod
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert {"name": "A", "value": "b"} in container["env"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("distrun", True)
    assert job["metadata"]["labels"][manifest.LABEL] == NAME
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    assert (job["spec"]["backoffLimit"], pod["volumes"][0]) == (
        0,
        {"name": "distrun", "emptyDir": {}},
    )


def test_pods_of_a_submitted_job_end_with_its_supervisor(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_SUBMITTED", NAME)
    monkeypatch.setenv("DISTRUN_JOB_UID", "uid")
    metadata = manifest.make(spec, "x")[0]["metadata"]
    assert metadata["name"] == f"{NAME}-pods"
    owner = metadata["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", NAME, "uid")
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_the_paths_of_what_is_sent_are_those_of_the_pod(spec: Spec, tmp_path: Path) -> None:
    moved = submission._in_pod(spec, "/distrun/x/files", "n")
    program = moved.program
    assert program.target == "/distrun/x/files/train.py"
    assert program.sync_base == "/distrun/x/files"
    assert program.workdir == "/distrun/x/files/sub"
    assert program.args == ("train.py",)
    assert moved.kubernetes is not None
    assert (moved.kubernetes.context, moved.kubernetes.namespace) == (None, "n")
    assert str(tmp_path) not in str(moved.program)


def _object(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    job = name.removesuffix("-1")
    labels = {manifest.LABEL: NAME, "job-name": job, **fields.pop("labels", {})}
    return {"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": {}, **fields}


RUNNING = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "containerStatuses": [{"name": "distrun", "state": {"running": {}}}],
}
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


@pytest.mark.parametrize(
    ("supervisor", "tasks", "pod", "expected"),
    [
        ({"phase": "Pending"}, None, None, ("pending", True, "Pending")),
        (RUNNING, None, None, ("running", False, "")),
        (RUNNING, {"suspend": True}, None, ("suspended", True, "queue team has not admitted")),
        (RUNNING, {}, None, ("admitted", True, "queue team has admitted")),
        (RUNNING, {}, {"phase": "Pending"}, ("admitted", True, "none runs yet")),
        (RUNNING, {}, RUNNING, ("running", False, "")),
        ({"phase": "Running"}, {}, None, ("pending", True, "")),
    ],
)
def test_a_job_waits_until_its_pods_are_admitted_and_run(
    supervisor: dict[str, Any],
    tasks: dict[str, Any] | None,
    pod: dict[str, Any] | None,
    expected: tuple[str, bool, str],
) -> None:
    items = [_object("Job", NAME, status={}), _object("Pod", f"{NAME}-1", status=supervisor)]
    if tasks is not None:
        items.append(_object("Job", f"{NAME}-pods", labels=QUEUE, spec=tasks, status={}))
    if pod is not None:
        items.append(_object("Pod", f"{NAME}-pods-1", status=pod))
    entry = batch_job._entry(NAME, items)
    state, is_pending, why = expected
    assert (entry.state, entry.is_pending, entry.is_active) == (state, is_pending, True)
    assert why in entry.reason


def test_a_job_has_ended_whose_supervisor_has_no_pod_any_more() -> None:
    failed = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    status = {"conditions": [{"type": "Failed", "reason": "BackoffLimitExceeded"}]}
    items = [_object("Job", NAME, status=status), _object("Pod", f"{NAME}-1", status=failed)]
    entry = batch_job._entry(NAME, items)
    assert not entry.is_active
    assert entry.cause is not None
    assert (entry.cause.code.value, entry.cause.text) == ("pod_preempted", "Evicted: low on memory")


@pytest.mark.parametrize(
    ("name", "is_copied"),
    [
        ("events.jsonl", True),
        ("logs/worker-0.log", True),
        ("results/a/b c.h5", True),
        ("../x", False),
        ("results/../../x", False),
        ("/etc/passwd", False),
        ("other/x", False),
        (".new-x", False),
    ],
)
def test_a_pod_cannot_write_outside_the_copy(name: str, is_copied: bool) -> None:
    assert bool(batch_job._COPIED.fullmatch(name)) is is_copied
