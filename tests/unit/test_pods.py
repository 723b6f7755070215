"""What pods say of why they do not run, or end: statuses of several versions of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from distrun.agent.protocol import Code
from distrun.kubernetes import manifest, pods
from distrun.plan.placement import place
from distrun.plan.replacement import place_again, room_of_hosts
from distrun.spec.loader import load_mapping
from harness.values import not_none

Json = dict[str, Any]


def pod(state: Json | None = None, *, deleted: bool = False, **status: Any) -> Json:
    metadata = {"name": "p", **({"deletionTimestamp": "2999-01-01T00:00:00Z"} if deleted else {})}
    own = [] if state is None else [{"name": "distrun", "image": "i:1", "state": state}]
    return {"metadata": metadata, "status": {"containerStatuses": own, **status}}


def target(reason: str, message: str) -> list[Json]:
    return [
        {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message},
        {"type": "Ready", "status": "False"},
    ]


RUNNING: Json = {"running": {}}


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (None, Code.POD_DELETED, ""),
        (pod(RUNNING, deleted=True), Code.POD_DELETED, ""),
        (pod(RUNNING, phase="Running"), None, ""),
        # A scheduler's preemption, a drain and a taint, from 1.26 on.
        (pod(RUNNING, conditions=target("PreemptionByScheduler", "preempting to accommodate a "
             "higher priority pod")), Code.POD_PREEMPTED, "PreemptionByScheduler: preempting to"),
        (pod(RUNNING, deleted=True, conditions=target("DeletionByTaintManager", "Taint manager: "
             "deleting due to NoExecute taint")), Code.POD_PREEMPTED, "DeletionByTaintManager"),
        # The kubelet's eviction: for the node's lack of memory, or for what the pod itself used.
        (pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. "
             "Container distrun was using 5Gi, which exceeds its request of 0."),
         Code.POD_PREEMPTED, "Evicted: The node was low on resource: memory"),
        (pod(phase="Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds "
             "the total limit of containers 1Gi."), Code.POD_ENDED, "Evicted: Pod ephemeral"),
        (pod(phase="Failed", reason="Shutdown", message="Node is shutting, evicting pods"),
         Code.POD_PREEMPTED, "Shutdown: Node is shutting"),
        (pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed"),
         Code.POD_OUT_OF_MEMORY, ""),
        (pod({"terminated": {"exitCode": 1, "reason": "Error"}}, phase="Failed"),
         Code.POD_ENDED, "Error"),
        (pod(phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer"
             " than the specified deadline"), Code.POD_ENDED, "longer than the specified deadline"),
    ],
)  # fmt: skip
def test_why_a_pod_ends_is_told_in_the_words_of_kubernetes(
    found: Json | None, code: Code | None, words: str
) -> None:
    cause = pods.end(found, "p")
    assert (None if cause is None else cause.code) == code
    assert cause is None or words in cause.text


NO_NODE = "0/12 nodes are available: 12 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("found", "code", "words", "is_final"),
    [
        (pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False",
             "reason": "Unschedulable", "message": NO_NODE}]), Code.POD_UNSCHEDULABLE, NO_NODE,
         False),
        (pod({"waiting": {"reason": "ErrImagePull", "message": "no such host"}}),
         Code.POD_IMAGE_MISSING, "ErrImagePull: no such host", False),
        (pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}),
         Code.POD_IMAGE_MISSING, "Back-off pulling image", True),
        (pod({"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not '
             "found"}}), Code.POD_NOT_STARTED, 'secret "s" not found', True),
        (pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"), Code.POD_PENDING,
         "Pending", False),
        (pod({"terminated": {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3"'
             ": executable file not found in $PATH"}}), Code.PYTHON_MISSING, "python3", True),
    ],
)  # fmt: skip
def test_why_a_pod_does_not_run_is_told_in_the_words_of_kubernetes(
    found: Json, code: Code, words: str, is_final: bool
) -> None:
    cause, found_final = pods.obstacle(found)
    assert (cause.code, found_final) == (code, is_final)
    assert words in cause.text


OWN_PODS: Json = {
    "name": "job",
    "strategy": "parameter_server",
    "cluster": {
        "chief": 1,
        "worker": {"count": 2, "pod": {"spec": {"nodeSelector": {"pool": "gpu"}}}},
        "ps": {"count": 1, "pod": {"spec": {"nodeSelector": {"pool": "big"}}}},
        "evaluator": 1,
    },
    "hosts": "kubernetes",
    "kubernetes": {"image": "i:1", "pod": {"spec": {"nodeSelector": {"zone": "a"}}}},
    "program": {"command": ["true"], "sync": "off", "workdir": "/"},
    "restart": {"max": 1},
}


def test_a_role_may_have_pods_of_its_own() -> None:
    """There is a Job for each shape; tasks run in the pods of their role, also after a loss."""
    spec = load_mapping(OWN_PODS)
    placed = place(spec)
    hosts = {each.name: each.host.name for each in placed}
    assert hosts == {
        "chief:0": "pod4", "worker:0": "pod1", "worker:1": "pod2", "ps:0": "pod3",
        "evaluator:0": "pod4",
    }  # fmt: skip
    jobs = manifest.make(spec, "job-abc")
    shapes = [
        (each["spec"]["parallelism"], each["spec"]["template"]["spec"]["nodeSelector"])
        for each in jobs
    ]
    assert shapes == [(2, {"zone": "a", "pool": "gpu"}), (1, {"zone": "a", "pool": "big"}),
                      (1, {"zone": "a"})]  # fmt: skip
    assert len({pods.name_of(each) for each in jobs}) == 3

    names = [each.name for each in placed]
    rooms = {**room_of_hosts(spec), "pod4": 9}
    again = not_none(place_again(spec, placed, names, rooms))
    assert {each.name: each.host.name for each in again} == hosts
    del rooms["pod1"]
    assert place_again(spec, placed, names, rooms) is None
