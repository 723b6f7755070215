"""The Jobs whose pods are the hosts of a job."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
from pathlib import Path
from typing import Any

from distrun.job import held_package
from distrun.job.scheduler import SUBMITTED
from distrun.kubernetes.pods import CONTAINER, LABEL_OF_JOB, LABEL_OF_SHAPE, QUEUE
from distrun.spec.model import Spec
from distrun.spec.schedulers import KubernetesSpec

_IDLE_SECONDS = 60
"""How long a pod waits for an agent, the lease of a lost one not counted."""
_KEPT_SECONDS = 30
"""How long Kubernetes keeps a Job that has ended and that nobody has deleted."""
_UNREACHABLE_SECONDS = 10
"""How long a pod stays on a node that is cut off before it is replaced, unless it says that."""
_CUT_OFF = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_END_SECONDS = 10
"""How long a pod may take to end once its tasks have had their grace."""
_MOST_REPLACEMENTS = 1000
LABEL = "distrun/submitted"
"""The label of all objects of a submitted job, with that name."""
FOLDER = "/distrun"
"""Where pods have what is distrun's."""
KEPT_RECORD_SECONDS = 24 * 3600
"""How long the pod of a supervisor waits until its record is read."""
_UPLOAD_SECONDS = 30
_SUPERVISOR_MIB, _LINK_MIB = 512, 32
"""What a supervisor needs, and for each host: it has a kubectl there."""
_GPU = "nvidia.com/gpu"
_CLAIM = "persistentVolumeClaim"
_REFERENCES = {
    _CLAIM: "pvc",
    **dict.fromkeys(("secret", "secretKeyRef", "secretRef"), "secret"),
    **dict.fromkeys(("configMap", "configMapKeyRef", "configMapRef"), "configmap"),
    "serviceAccountName": "serviceaccount",
    "priorityClassName": "priorityclass",
    "runtimeClassName": "runtimeclass",
}
"""The kind of object that each key of a pod names."""
_LABELS = {"app.kubernetes.io/managed-by": "distrun"}
Json = dict[str, Any]
_BY_KEY = {"volumeMounts": "mountPath", "ports": "containerPort"}
"""The key by which an item of a list in an overlay replaces one; in other lists it is `name`."""


def job_name(job_id: str) -> str:
    """Return the name of a job's first Job: the same for each supervisor, and for no other job."""
    if SUBMITTED in os.environ:
        return f"{os.environ[SUBMITTED]}-pods"
    own = repr((job_id, socket.gethostname(), os.getuid()))
    slug = re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")[:36].rstrip("-")
    return f"distrun-{slug}-{hashlib.sha256(own.encode()).hexdigest()[:8]}"


def make(spec: Spec, job_id: str) -> list[Json]:
    """Return the manifests of the Jobs, one for each shape of pods."""
    shapes = dict.fromkeys(host.role for host in spec.hosts if host.pod)
    name = job_name(job_id)
    names = [name, *(f"{name}-{number}" for number in range(2, len(shapes) + 1))]
    return [_job(spec, job_id, *each) for each in zip(names, shapes, strict=True)]


def _job(spec: Spec, job_id: str, name: str, shape: str) -> Json:
    settings = spec.kubernetes
    assert settings is not None  # noqa: S101 - only such specs have pods
    count = sum(host.pod and host.role == shape for host in spec.hosts)
    labels = {**_LABELS, LABEL_OF_JOB: job_name(job_id)}
    if SUBMITTED in os.environ:
        labels[LABEL] = os.environ[SUBMITTED]
    if shape:
        labels[LABEL_OF_SHAPE] = shape
    queue = {} if settings.queue is None else {QUEUE: settings.queue}
    own = [role.pod for role in spec.roles if role.role.value == shape]
    template = _pod(spec, settings, labels, *own)
    job = _manifest(name, {**labels, **queue}, job_id, template, _MOST_REPLACEMENTS)
    if SUBMITTED in os.environ:  # its end is that of these pods, too
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": os.environ[SUBMITTED]}
        reference["uid"] = os.environ["DISTRUN_JOB_UID"]
        job["metadata"]["ownerReferences"] = [reference]
    job["spec"].update(parallelism=count, completions=count)
    if spec.timeouts.run is not None and spec.timeouts.start is not None:
        limit = spec.timeouts.run + spec.timeouts.start + spec.timeouts.grace + _IDLE_SECONDS
        job["spec"]["activeDeadlineSeconds"] = math.ceil(limit)
    return job


def _manifest(name: str, labels: dict[str, str], job_id: str, pod: Json, replacements: int) -> Json:
    """Return the manifest of a Job, `replacements` of whose pods may fail."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": {"distrun/job": job_id}},
        "spec": {
            "backoffLimit": replacements,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": pod,
        },
    }


def references(*jobs: Json) -> list[str]:
    """Return the objects without which the pods of Jobs do not start, for `kubectl.require`."""
    found: set[str] = set()

    def look(item: Json) -> Json:
        for key in item.keys() & _REFERENCES.keys():
            value = item[key]
            keys = []
            if isinstance(value, dict) and not value.get("optional"):
                items = (value, *(value.get("items") or ()))
                keys = [each["key"] for each in items if "key" in each]
                value = value.get("claimName") or value.get("secretName") or value.get("name")
            elif not key.endswith("Name"):  # it is optional, or a label
                continue
            found.update(f"{_REFERENCES[key]}/{value} {each}".rstrip() for each in keys or ("",))
        return item

    for pod in (each["spec"]["template"]["spec"] for each in jobs):
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        mounted = [each.get("name") for own in containers for each in own.get("volumeMounts", ())]
        # Without a mount, only claims count.
        volumes = [v for v in pod["volumes"] if v["name"] in mounted or _CLAIM in v]
        json.loads(json.dumps({**pod, "volumes": volumes}), object_hook=look)
    return sorted(found)


def base_of(job_id: str) -> str:
    return f"{FOLDER}/{job_id}"


def make_supervisor(spec: Spec, job_id: str, name: str) -> Json:
    """Return the manifest of the Job of a submitted job's supervisor.

    Its pod is like those of the tasks, without their resources and without other containers.
    """
    settings = spec.kubernetes
    assert settings is not None  # noqa: S101 - only such specs have pods
    labels, base = {**_LABELS, LABEL: name}, base_of(job_id)
    pod = _pod(spec, settings, labels)
    inner = pod["spec"]
    container = next(each for each in inner["containers"] if each["name"] == CONTAINER)
    # Small, but not none: a namespace's quota may demand limits, and a pod without goes first.
    memory = f"{_SUPERVISOR_MIB + _LINK_MIB * len(spec.hosts)}Mi"
    requests = {"cpu": "250m", "memory": memory}
    container["resources"] = {"limits": {"cpu": "1", "memory": memory}, "requests": requests}
    inner.pop("initContainers", None)
    inner["containers"] = [container]
    inner["automountServiceAccountToken"] = True
    inner["serviceAccountName"] = settings.service_account
    # The tasks have their grace before the supervisor ends.
    inner["terminationGracePeriodSeconds"] += _END_SECONDS
    replacements = 0
    if settings.volume_claim is not None:
        claim = {"claimName": settings.volume_claim}
        others = [each for each in inner["volumes"] if each["name"] != "distrun"]
        inner["volumes"] = [{"name": "distrun", "persistentVolumeClaim": claim}, *others]
        replacements = _MOST_REPLACEMENTS
    path = f"import sys; sys.path.insert(0, {base + '/package'!r})"
    program = f"{path}; from distrun.__main__ import main; main()"
    container["command"] = [
        *(*container["command"][:-1], str(_UPLOAD_SECONDS), base, str(KEPT_RECORD_SECONDS)),
        *("python3", "-I", "-c", program, "batch-run", "--job", job_id),
    ]
    uid = {"fieldRef": {"fieldPath": "metadata.labels['controller-uid']"}}
    container["env"] += [
        {"name": "DISTRUN_JOB_UID", "valueFrom": uid},
        {"name": SUBMITTED, "value": name},
        {"name": "DISTRUN_HOME", "value": f"{base}/home"},
        {"name": "KUBECONFIG", "value": os.devnull},  # kubectl takes the service account then
    ]
    return _manifest(name, labels, job_id, pod, replacements)


def _pod(spec: Spec, settings: KubernetesSpec, labels: dict[str, str], *overlays: str) -> Json:
    """Return the template of pods, with the job's overlay and further ones."""
    lease, grace = spec.timeouts.link or 0.0, spec.timeouts.grace
    code = held_package.read(str(Path(__file__).with_name("guard.py"))).decode()
    container: Json = {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["python3", "-I", "-S", "-c", code, str(math.ceil(lease) + _IDLE_SECONDS)],
        # For logs and the program's files: an image may be read-only, and its user without a home.
        "env": [{"name": "XDG_STATE_HOME", "value": "/distrun"}],
        "volumeMounts": [
            {"name": "distrun", "mountPath": "/distrun"},
            {"name": "distrun-shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own
        ],
    }
    gpus = str(settings.gpus) if settings.gpus else None
    wanted = {"cpu": settings.cpus, "memory": settings.memory, _GPU: gpus}
    limits = {name: value for name, value in wanted.items() if value is not None}
    if limits:
        container["resources"] = {"limits": limits, "requests": dict(limits)}
    pod: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(grace) + _END_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        # The runtime's own has 64 MB, too few for TensorFlow's and NCCL's shared memory.
        "volumes": [
            {"name": "distrun", "emptyDir": {}},
            {"name": "distrun-shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if settings.priority_class is not None:
        pod["priorityClassName"] = settings.priority_class
    template: Json = {"metadata": {}, "spec": pod}
    for overlay in (settings.pod, *overlays):
        template = _merge(template, json.loads(overlay))
    template["metadata"].setdefault("labels", {}).update(labels)  # pods are found by them
    pod = template["spec"]
    tolerations = pod.get("tolerations", [])
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    pod["tolerations"] = tolerations + [
        {"key": key, **toleration, "tolerationSeconds": _UNREACHABLE_SECONDS}
        for key in _CUT_OFF
        if all(each.get("key") != key for each in tolerations)
    ]
    for each in (*pod["containers"], *pod.get("initContainers", ())):
        each.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return template


def _merge(base: Any, overlay: Any, key: str = "") -> Any:
    """Return what an overlay makes of a manifest: mappings are merged, and lists of named items.

    Other lists are appended to, those of a sidecar's command and arguments replaced.
    """
    if isinstance(base, dict) and isinstance(overlay, dict):
        changed = {
            name: _merge(base[name], value, name) if name in base else value
            for name, value in overlay.items()
        }
        return {**base, **changed}
    if not (isinstance(base, list) and isinstance(overlay, list)) or key in ("command", "args"):
        return overlay
    by = _BY_KEY.get(key, "name")
    merged = list(base)
    own = {"name": CONTAINER} if key == "containers" else {}
    for each in overlay:
        item = {**own, **each} if isinstance(each, dict) else each
        named = isinstance(item, dict) and by in item
        same = [
            index
            for index, known in enumerate(merged)
            if named and isinstance(known, dict) and known.get(by) == item[by]
        ]
        if same:
            known = merged[same[0]]
            # A variable has one value, and a volume one source.
            replaces = key == "env" or (key == "volumes" and known.keys() & item.keys() == {by})
            merged[same[0]] = item if replaces else _merge(known, item)
        else:
            merged.append(item)
    return merged
