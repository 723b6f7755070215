"""Converts a TFJob of Kubeflow (kubeflow.org/v1, and v1beta2 where it is alike) into a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import yaml

from distrun.errors import InvalidSpecError
from distrun.spec.loader import load_mapping
from distrun.spec.placeholders import literal
from distrun.spec.problems import printable
from distrun.spec.yamltext import dump
from distrun.strategies import STRATEGIES, USUAL, Role

_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1beta2")
_ROLES = {**{each.value: each.value for each in Role}, "master": "chief"}
_POLICY = (
    *("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"),
    *("schedulingPolicy", "suspend", "managedBy"),
)
_OPERATOR = "kubeflow.org/training-operator"
_CONTAINER = "tensorflow"
_GPU = "nvidia.com/gpu"
_QUEUE = "kueue.x-k8s.io/queue-name"
_VARIABLE = re.compile(r"\$(\$)|\$\(([^)]*)\)")
"""As Kubernetes expands them in `command`, `args` and `env`; the first form stands for `$`."""
_MOST_VALUES = 100_000
_MANY = 100
"""Restarts, where the TFJob has no limit."""

Json = dict[str, Any]


def convert(text: str, entry_point: Sequence[str] = ()) -> str:
    """Return a spec as YAML; comments say what was guessed, and what was dropped.

    Args:
        text: the manifest.
        entry_point: of the image, for containers without a command.

    Raises:
        InvalidSpecError: it is no TFJob, or it has what distrun cannot do.
    """
    try:
        documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
        documents = [_copied(each, count()) for each in documents]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = printable(str(error).partition("\n")[0])
        raise InvalidSpecError(f"this is no YAML: {first}") from None
    jobs = [each for each in documents if each.get("kind") == "TFJob"]
    if len(jobs) != 1:
        found = f"{len(jobs)} TFJobs are in it" if jobs else "no TFJob is in it"
        raise InvalidSpecError(found, hint="give one manifest with `kind: TFJob`")
    converted = _Conversion(jobs[0], entry_point)
    for each in (each for each in documents if each not in jobs):
        metadata = each.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        converted.notes.append(f"{each.get('kind')} {name}: dropped: create it with kubectl")
    try:
        spec = converted.convert()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # A value of another type than the API has there; an API server would refuse it.
        raise InvalidSpecError(
            f"a field has not the form that TFJobs have: {printable(str(error))}",
            hint="`kubectl apply --dry-run=server -f` names the field",
        ) from None
    load_mapping(spec)
    title = f"From the TFJob {spec['name']}. Check it with `distrun plan`."
    comments = (f"# {printable(each)}\n" for each in (title, *converted.notes))
    return "".join(comments) + dump(spec)


class _Role:
    """The replicas of one role; `container` and `pod` lose what has been converted."""

    def __init__(self, name: str, path: str, fields: Json) -> None:
        self.name, self.path = name, path
        count = fields.pop("replicas", None)
        self.count = 1 if count is None else count
        self.restart = fields.pop("restartPolicy", None) or "Never"
        self.template = _mapping(fields.pop("template", None), f"{path}.template")
        self.left = fields
        self.pod = _mapping(self.template.pop("spec", None), f"{path}.template.spec")
        self.metadata: Json = self.template.pop("metadata", None) or {}
        containers = self.pod.pop("containers", None) or []
        self.others = [each for each in containers if each.get("name") != _CONTAINER]
        own = [each for each in containers if each.get("name") == _CONTAINER]
        if len(own) != 1:
            raise _refused(f"{path}.template.spec.containers", f"none has the name {_CONTAINER}")
        self.container_path = f"{path}.template.spec.containers[{_CONTAINER}]"
        self.container: Json = own[0]
        self.words: list[str] = []
        self.env: dict[str, str] = {}
        self._elsewhere: dict[str, Json] = {}
        """The variables whose values only the cluster knows."""
        for each in self.container.pop("env", None) or []:
            value = str(each.get("value", ""))
            names = {found[2] for found in _VARIABLE.finditer(value)}
            is_elsewhere = names & self._elsewhere.keys() and not names & self.env.keys()
            if "valueFrom" in each or is_elsewhere:
                self._elsewhere[each["name"]] = each
            else:
                self.env[each["name"]] = self.expand(value)
        if self._elsewhere:
            self.container["env"] = list(self._elsewhere.values())

    def expand(self, text: str) -> str:
        """Expand variables; what is none of them stays as it is, as `$(...)` of a shell does."""

        def value(found: re.Match[str]) -> str:
            if found[1]:
                return "$"
            if found[2] in self.env:
                return self.env[found[2]]
            if found[2] in self._elsewhere or "envFrom" in self.container:
                raise _refused(self.container_path, f"the value of {found[0]} is not known here")
            return found[0]

        return _VARIABLE.sub(value, text)


class _Conversion:
    """One TFJob. `notes` say what was guessed or dropped, each with the path of its field."""

    def __init__(self, job: Json, entry_point: Sequence[str]) -> None:
        self._job, self._entry_point = job, entry_point
        self.notes: list[str] = []
        self._spec: Json = {}
        self._roles: dict[str, _Role] = {}

    def convert(self) -> Json:
        version, _ = self._job.pop("apiVersion", None), self._job.pop("kind")
        if version not in _VERSIONS:
            known = " and ".join(_VERSIONS)
            raise _refused("apiVersion", f"{version} is not known: distrun reads {known}")
        metadata = _mapping(self._job.pop("metadata", {}), "metadata")
        generated = str(metadata.pop("generateName", "job")).rstrip("-")
        self._spec["name"] = metadata.pop("name", None) or generated
        namespace, labels = metadata.pop("namespace", None), metadata.get("labels") or {}
        settings = {"namespace": namespace, "queue": labels.pop(_QUEUE, None)}
        self._note_left({key: value for key, value in metadata.items() if value}, "metadata.")
        spec = _mapping(self._job.pop("spec", None), "spec")
        self._note_left(self._job, "")
        if spec.pop("enableDynamicWorker", False):
            reason = "distrun replaces lost hosts by `restart`, and has no workers that come and go"
            raise _refused("spec.enableDynamicWorker", reason)
        self._read_roles(spec)
        self._guess_strategy()
        if "runPolicy" in spec:
            at, policy = "spec.runPolicy", _mapping(spec.pop("runPolicy"), "spec.runPolicy")
        else:
            at, policy = "spec", {key: spec.pop(key) for key in _POLICY if key in spec}
        self._spec["cluster"] = {role: {"count": each.count} for role, each in self._roles.items()}
        self._spec["hosts"] = "kubernetes"
        self._spec["kubernetes"] = {key: value for key, value in settings.items() if value}
        self._convert_programs()
        self._convert_pods()
        self._convert_restarts(policy.pop("backoffLimit", None), f"{at}.backoffLimit")
        self._convert_policy(policy, at)
        self._convert_success(spec.pop("successPolicy", None) or "")
        self._note_left(spec, "spec.")
        cluster = self._spec["cluster"]
        for role, fields in cluster.items():
            if fields.keys() == {"count"}:
                cluster[role] = fields["count"]
        return self._spec

    def _note(self, path: str, text: str) -> None:
        self.notes.append(f"{path}: {text}")

    def _note_left(self, fields: Json, path: str) -> None:
        for key in fields:
            self._note(f"{path}{key}", "dropped: distrun has nothing like it")

    def _read_roles(self, spec: Json) -> None:
        replicas = _mapping(spec.pop("tfReplicaSpecs", None), "spec.tfReplicaSpecs")
        for written, fields in replicas.items():
            path = f"spec.tfReplicaSpecs.{written}"
            role = _ROLES.get(str(written).lower())
            if role is None or role in self._roles:
                raise _refused(path, "no role of a TFJob has this name" if role is None
                               else "it is a second chief")  # fmt: skip
            each = _Role(role, path, _mapping(fields, path))
            if each.count == 0:
                self._note(path, "dropped: it has no replicas")
                continue
            self._roles[role] = each
            if str(written).lower() == "master":
                self._note(path, "is the role chief")
            if each.pod.pop("restartPolicy", None):
                why = f"dropped: {path}.restartPolicy counts"
                self._note(f"{path}.template.spec.restartPolicy", why)
            self._note_left(each.left, f"{path}.")
            self._note_left(each.template, f"{path}.template.")
            others = each.metadata.keys() - {"labels", "annotations"}
            self._note_left(dict.fromkeys(sorted(others)), f"{path}.template.metadata.")
        if not self._roles:
            raise _refused("spec.tfReplicaSpecs", "no role has replicas")

    @property
    def _first(self) -> _Role:
        """The role whose pods all others are like: the worker, or without one the chief."""
        return self._roles.get("worker") or next(iter(self._roles.values()))

    def _guess_strategy(self) -> None:
        has_ps = "ps" in self._roles
        served = (name for name, row in STRATEGIES.items() if Role.PS in row.roles)
        strategy = next(served) if has_ps else USUAL
        self._spec["strategy"] = strategy
        why = "it has parameter servers" if has_ps else "it has no parameter servers"
        self._note("spec.tfReplicaSpecs", f"guessed: strategy {strategy}, because {why}")
        if has_ps and "chief" not in self._roles:
            self._spec["workers"] = "independent"
            self._note("spec.tfReplicaSpecs", "guessed: workers independent, as there is no chief")

    # Programs ------------------------------------------------------------------------------

    def _convert_programs(self) -> None:
        for role in self._roles.values():
            role.words = self._words(role)
        common = _common_beginning([role.words for role in self._roles.values()])
        if not common:
            raise _refused(
                "spec.tfReplicaSpecs", "the roles run different programs, and distrun runs one"
            )
        for role in self._roles.values():
            rest = role.words[len(common) :]
            if rest:
                self._spec["cluster"][role.name]["args"] = rest
        program = self._spec["program"] = {"command": common, "sync": "off"}
        folders = {role.container.pop("workingDir", None) for role in self._roles.values()}
        folder = next(iter(folders)) if len(folders) == 1 else None
        if folder is None:
            self._note(
                f"{self._first.container_path}.workingDir",
                "guessed: /, because the image's own is not known here",
            )
        program["workdir"] = folder or "/"
        self._convert_env(program)
        if "${" in repr((common, self._spec["cluster"], program)):
            self._spec["vars"] = "off"

    def _words(self, role: _Role) -> list[str]:
        command = role.container.pop("command", None) or self._entry_point
        if not command:
            raise InvalidSpecError(
                f"{role.container_path}.command: it is missing, and the entry point of the image "
                "is not known here",
                hint="give that: --command 'python /app/train.py' (`docker inspect` shows it)",
            )

        words = [*command, *(role.container.pop("args", None) or [])]
        return [literal(role.expand(str(each))) for each in words]

    def _convert_env(self, program: Json) -> None:
        for role in self._roles.values():
            if role.env.pop("TF_CONFIG", None) is not None:
                self._note(f"{role.container_path}.env.TF_CONFIG", "dropped: distrun makes it")
        common = {
            name: value
            for name, value in self._first.env.items()
            if all(role.env.get(name) == value for role in self._roles.values())
        }
        if common:
            program["env"] = {name: literal(value) for name, value in common.items()}
        for role in self._roles.values():
            own = {n: literal(value) for n, value in role.env.items() if n not in common}
            if own:
                self._spec["cluster"][role.name]["env"] = own

    # Pods ----------------------------------------------------------------------------------

    def _convert_pods(self) -> None:
        settings = self._spec["kubernetes"]
        images = {role.container.pop("image", None) for role in self._roles.values()}
        if len(images) != 1 or None in images:
            raise _refused("spec.tfReplicaSpecs", "distrun runs all roles in one image: these have "
                           f"{', '.join(sorted(map(str, images)))}")  # fmt: skip
        settings["image"] = images.pop()
        for role in self._roles.values():
            for key in ("ports", "livenessProbe", "readinessProbe", "startupProbe", "stdin", "tty"):
                if role.container.pop(key, None) is not None:
                    why = "distrun chooses ports" if key == "ports" else "distrun watches the tasks"
                    self._note(f"{role.container_path}.{key}", f"dropped: {why}")
        first = self._first
        self._convert_resources(first, settings)
        priority = first.pod.pop("priorityClassName", None)
        if priority:
            settings["priority_class"] = priority
        overlay = _overlay(first)
        for role in self._roles.values():
            if role is not first:
                role.container.pop("resources", None)
                role.pod.pop("priorityClassName", None)
                if _overlay(role) != overlay:
                    why = f"dropped where it differs from {first.path}.template: all pods are alike"
                    self._note(f"{role.path}.template", why)
        if overlay:
            settings["pod"] = overlay

    def _convert_resources(self, first: _Role, settings: Json) -> None:
        resources = first.container.pop("resources", None) or {}
        requests, limits = (resources.get(key) or {} for key in ("requests", "limits"))
        if requests and requests != limits:
            path = f"{first.container_path}.resources.requests"
            self._note(path, "guessed: pods ask for as much as they may use")
        limits = {**requests, **limits}
        for role in self._roles.values():
            if role is not first and role.container.get("resources", resources) != resources:
                path = f"{role.container_path}.resources"
                self._note(path, f"dropped: all pods are like those of {first.path}")
        for key, own in (("cpu", "cpus"), ("memory", "memory"), (_GPU, "gpus")):
            if key in limits:
                value = limits.pop(key)
                settings[own] = int(value) if own == "gpus" else str(value)
        left = {key: value for key, value in resources.items() if key not in ("requests", "limits")}
        if limits or left:
            first.container["resources"] = {**left, **({"limits": limits} if limits else {})}

    # Policies ------------------------------------------------------------------------------

    def _convert_restarts(self, limit: int | None, path: str) -> None:
        policies = {name: role.restart for name, role in self._roles.items()}
        if limit is None and set(policies.values()) != {"Never"}:
            limit = _MANY
            self._note(path, f"guessed: {_MANY}, because it is not limited")
        found = {name: self._restart(name, kind, limit) for name, kind in policies.items()}
        job = found[self._first.name]
        if job is not None:
            self._spec["restart"] = job
        for name, own in found.items():
            if own != job:
                self._spec["cluster"][name]["restart"] = "never" if own is None else own

    def _restart(self, name: str, kind: str, limit: int | None) -> Json | None:
        path = f"{self._roles[name].path}.restartPolicy"
        if kind not in ("Never", "OnFailure", "Always", "ExitCode"):
            raise _refused(path, f"{kind} is not a policy of a TFJob")
        if kind == "Never" or not limit:
            return None
        if kind == "Always":
            self._note(path, "guessed: restarts after failures; a task that exits 0 has finished")
        return {"max": limit, "never_on": ["1-127"]} if kind == "ExitCode" else {"max": limit}

    def _convert_policy(self, policy: Json, path: str) -> None:
        if policy.pop("suspend", False):
            raise _refused(f"{path}.suspend", "distrun starts a job at once; Kueue may hold it")
        if policy.pop("managedBy", None) not in (None, "", _OPERATOR):
            raise _refused(f"{path}.managedBy", "another controller is to run it")
        at = f"{path}.schedulingPolicy"
        scheduling = _mapping(policy.pop("schedulingPolicy", None) or {}, at)
        for key, own, fields in (
            ("scheduleTimeoutSeconds", "start", scheduling),
            ("activeDeadlineSeconds", "run", policy),
        ):
            if fields.get(key) is not None:
                self._spec.setdefault("timeouts", {})[own] = f"{fields.pop(key)}s"
        for key, own in (("queue", "queue"), ("priorityClass", "priority_class")):
            if scheduling.get(key) and own not in self._spec["kubernetes"]:
                self._spec["kubernetes"][own] = scheduling.pop(key)
        for fields, key, why in (
            (scheduling, "minAvailable", "distrun starts all tasks or none"),
            (policy, "cleanPodPolicy", "no pod outlives the job, and its logs stay here"),
            (policy, "ttlSecondsAfterFinished", "no pod outlives the job"),
        ):
            if fields.pop(key, None) is not None:
                self._note(f"{at if fields is scheduling else path}.{key}", f"dropped: {why}")
        self._note_left(scheduling, f"{at}.")
        self._note_left(policy, f"{path}.")

    def _convert_success(self, policy: str) -> None:
        if policy not in ("", "AllWorkers"):
            raise _refused("spec.successPolicy", f"{policy} is not a policy of a TFJob")
        by_default = "chief" if "chief" in self._roles else "worker0"
        self._spec["success"] = "all" if policy else by_default


def _copied(value: Any, values: Iterator[int]) -> Any:
    """Return a value in which nothing is shared: an alias of YAML stands for a value of its own.

    A field that is null is none, as for the API server.
    """
    if next(values) == _MOST_VALUES:
        raise ValueError(f"with its aliases it has more than {_MOST_VALUES:,} values")
    if isinstance(value, dict):
        own = ((key, each) for key, each in value.items() if each is not None)
        return {key: _copied(each, values) for key, each in own}
    return [_copied(each, values) for each in value] if isinstance(value, list) else value


def _common_beginning(lists: list[list[str]]) -> list[str]:
    shortest = min(lists, key=len)
    for at, word in enumerate(shortest):
        if any(each[at] != word for each in lists):
            return shortest[:at]
    return shortest


def _overlay(role: _Role) -> Json:
    """What the pods of a role have beside what has keys of its own in a spec."""
    own = ("labels", "annotations")
    metadata = {key: role.metadata[key] for key in own if role.metadata.get(key)}
    container = {key: value for key, value in role.container.items() if key != "name"}
    spec = dict(role.pod)
    if "serviceAccountName" in spec or "serviceAccount" in spec:
        spec.setdefault("automountServiceAccountToken", True)
    containers = [container] if container else []
    if containers or role.others:
        spec["containers"] = [*containers, *role.others]
    return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}


def _mapping(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise _refused(path, "it must be a mapping" if value is not None else "it is missing")
    return value


def _refused(path: str, reason: str) -> InvalidSpecError:
    return InvalidSpecError(f"{printable(path)}: {printable(reason)}")
