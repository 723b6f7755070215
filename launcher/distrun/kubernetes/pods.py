"""What the status of a pod says: whether it runs, why it does not start, and why it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from distrun.agent.protocol import Cause, Code

CONTAINER = "distrun"
"""The name of the container in which agents run."""
LABEL_OF_JOB, LABEL_OF_SHAPE = "distrun/job", "distrun/role"
"""Labels of Jobs and pods: the first Job's name, and whose pods they are; empty: of all roles."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""The label of a Job that is admitted by a queue of Kueue."""
Pod = dict[str, Any]

_IMAGE = ("ErrImageNeverPull", "InvalidImageName", "ImagePullBackOff", "ErrImagePull")
_MAY_PASS = ("ContainerCreating", "PodInitializing", "ErrImagePull")
"""Reasons for which a container waits that say nothing yet: the first pull may just have failed."""
_PREEMPTED = ("Evicted", "Preempting", "NodeShutdown", "Terminated", "Shutdown", "NodeLost")
_NOT_READ = "reading termination message from logs"
_LONGEST, _LONGEST_END = 400, 300
_SLOW_SECONDS = 10.0
"""How long after its grace a kubelet may need to say that a pod has ended."""


def name_of(pod: Pod) -> str:
    return str(pod.get("metadata", {}).get("name", ""))


def as_list(manifests: Iterable[Pod]) -> str:
    """Return the manifests of several objects as one, in JSON."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests]})


def shape_of(item: Pod) -> str:
    """Return the role whose pods those of a Job are; empty: of all that have none of their own."""
    return str(item.get("metadata", {}).get("labels", {}).get(LABEL_OF_SHAPE, ""))


def queue_of(job: Pod) -> str:
    """Return the queue of a Job; empty: it has none."""
    return str(job["metadata"].get("labels", {}).get(QUEUE, ""))


def is_running(pod: Pod) -> bool:
    """Whether agents can be started in it."""
    status = pod.get("status", {})
    state = _container(pod).get("state", {})
    return status.get("phase") == "Running" and "running" in state and bool(status.get("podIP"))


def is_cut_off(pod: Pod) -> bool:
    """Whether its node is not ready: the cluster says that of a pod, and gives no reason."""
    status = {each.get("type"): each for each in pod.get("status", {}).get("conditions", ())}
    ready, containers = status.get("Ready", {}), status.get("ContainersReady", {})
    said = (ready.get("status"), containers.get("status"))
    return said == ("False", "True") and not ready.get("reason")


def is_ending(pod: Pod) -> bool:
    return "deletionTimestamp" in pod.get("metadata", {})


def is_over(pod: Pod) -> bool:
    """Whether nothing runs in it any more, or it cannot be known: its node is cut off."""
    deleted = pod.get("metadata", {}).get("deletionTimestamp", "9")  # the end of the grace
    if deleted < time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _SLOW_SECONDS)):
        return True
    return has_ended(pod)


def has_ended(pod: Pod) -> bool:
    """Whether it is known that nothing runs in it any more."""
    is_final = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    state = _container(pod).get("state", {})
    return is_final or "terminated" in state or (is_ending(pod) and "running" not in state)


def obstacle(pod: Pod) -> tuple[Cause, bool]:
    """Return why a pod does not run yet, and whether that is no matter of waiting."""
    name, status = name_of(pod), pod.get("status", {})
    for each in status.get("conditions", ()):
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return _cause(Code.POD_UNSCHEDULABLE, name, each.get("message")), False
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    for each in containers:
        waiting = each.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        words = f"{reason}: {waiting['message']}" if waiting.get("message") else reason
        if reason in _IMAGE:
            cause = _cause(Code.POD_IMAGE_MISSING, name, words)._replace(path=each.get("image", ""))
            return cause, reason not in _MAY_PASS
        if reason and reason not in _MAY_PASS:
            return _cause(Code.POD_NOT_STARTED, name, words), True
        ended = each.get("state", {}).get("terminated", {})
        if each.get("name") != CONTAINER and ended.get("exitCode"):
            said = str(_last_words(ended))[-_LONGEST_END:]
            words = f"its container {each.get('name')} exited with {ended['exitCode']}: {said}"
            return _cause(Code.POD_NOT_STARTED, name, words), False
    ended = _terminated(pod)
    if ended:
        cause = _cause(Code.POD_NOT_STARTED, name, _last_words(ended))
        return cause._replace(status=ended.get("exitCode")), True
    first = status.get("initContainerStatuses", ())
    running = [each["name"] for each in first if "running" in each.get("state", {})]
    said = f"its init container {running[0]} runs" if running else status.get("phase", "")
    return _cause(Code.POD_PENDING, name, said), False


def end(pod: Pod | None, name: str) -> Cause | None:
    """Return why a pod ends or has ended; None: it lives. `pod` is None if it is gone."""
    if pod is None:
        return Cause(Code.POD_DELETED, name=name)
    status, ended = pod.get("status", {}), _terminated(pod)
    targeted = [
        each
        for each in status.get("conditions", ())
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True"
    ]
    for each in (*targeted, status):
        if targeted or status.get("reason") in _PREEMPTED:
            words = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
            is_own = "exceed" in words and "low on resource" not in words  # of its own limits
            return _cause(Code.POD_ENDED if is_own else Code.POD_PREEMPTED, name, words)
    if ended.get("reason") == "OOMKilled":
        return _cause(Code.POD_OUT_OF_MEMORY, name, "")
    if is_ending(pod):
        return Cause(Code.POD_DELETED, name=name)
    if not is_over(pod):
        return None
    own = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    last = ended.get("message") or own or ended.get("reason")
    return _cause(Code.POD_ENDED, name, last)._replace(status=ended.get("exitCode"))


def _container(pod: Pod) -> dict[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return next((each for each in statuses if each.get("name") == CONTAINER), {})


def _terminated(pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = _container(pod).get("state", {}).get("terminated", {})
    return found


def _last_words(ended: dict[str, Any]) -> Any:
    """What a container has printed last, unless the kubelet could not read that; or the reason."""
    said = str(ended.get("message") or "")
    return ended.get("reason") if not said or _NOT_READ in said else said


def _cause(code: Code, name: str, words: Any) -> Cause:
    return Cause(code, name=name, text=cut(str(words or "")))


def cut(words: str) -> str:
    """Return the beginning of a message, in one line."""
    return " ".join(words.split())[:_LONGEST]
