"""Converts a TFJob of Kubeflow (kubeflow.org/v1, and v1beta2 where it is alike) into a spec."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from distrun.errors import InvalidSpecError
from distrun.kubernetes.pods import CONTAINER, QUEUE
from distrun.spec.loader import load_mapping
from distrun.spec.nodes import Mapping
from distrun.spec.placeholders import literal
from distrun.spec.problems import Problems, SpecProblemsError, printable
from distrun.spec.schedulers import QUANTITIES, plain
from distrun.spec.yamlnodes import parse_all
from distrun.spec.yamltext import dump
from distrun.strategies import STRATEGIES, USUAL, Role
from distrun.words.formats import one_line

_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1beta2")
_ROLES = {**{each.value: each.value for each in Role}, "master": "chief"}
_OF_V1ALPHA1 = """kind TFJob, and spec.tfReplicaSpecs, which has each item of spec.replicaSpecs
    under its tfReplicaType, such as Worker"""
_OF_LATER = "with spec.tfReplicaSpecs, only apiVersion changes"
_OPERATOR = "kubeflow.org/training-operator"
_LABEL = re.compile(r"training\.kubeflow\.org/[\w-]+|\btf-(?:job|replica)-\w+")
"""What Kubeflow's operator gives its pods, for affinities and `valueFrom`."""
_CONTAINER = "tensorflow"
_VARIABLE = re.compile(r"\$(\$)|\$\(([^)]*)\)")
"""As Kubernetes expands them in `command`, `args` and `env`; the first form stands for `$`."""
_KEYS = {"cpu": "cpus", "memory": "memory", "nvidia.com/gpu": "gpus"}
"""What a spec calls the resources of pods that are all alike."""
_STRONGER = {"queue": "metadata's label", "priority_class": "pods"}
"""What counts more than the schedulingPolicy."""
_MANY = 100
"""Restarts, where the TFJob has no limit."""

Json = dict[str, Any]


def convert(
    text: str, entry_point: Sequence[str] = (), shown: str = "TFJOB", name: str | None = None
) -> str:
    """Return a manifest as a spec in YAML; comments say what was guessed, and what was dropped.

    `entry_point`: of the image, for containers without a command. `shown`: its name in messages.
    `name`: which TFJob of several. Raises InvalidSpecError.
    """
    problems = Problems()
    roots = parse_all(re.sub("^\ufeff", "", text, flags=re.MULTILINE), shown, problems)
    problems.raise_if_any()
    objects = [plain(each, is_manifest=True) for each in roots if isinstance(each, Mapping)]
    for each in list(objects):
        if str(each.get("kind")).endswith("List") and isinstance(each.get("items"), list):
            objects.remove(each)
            objects += filter(lambda item: isinstance(item, dict), each["items"])
    jobs = [each for each in objects if str(each.get("kind")).lower() == "tfjob"]
    for each in jobs:
        each["kind"] = "TFJob"  # v1alpha1 has another spelling
    chosen = [each for each in jobs if name is None or _title(each) == f"TFJob {name}"]
    if len(chosen) != 1:
        found = f"{len(chosen)} TFJobs are" if chosen else "no such TFJob is"
        found = f"{found if jobs else 'no TFJob is'} in it"
        message = ": ".join(filter(None, (found, ", ".join(map(_title, jobs or objects)))))
        hint = "choose one: --name NAME" if jobs else "give a manifest with `kind: TFJob`"
        if not jobs and re.search(r"\bkind\W+TFJob\b", text):
            hint = "write the TFJob that is inside it into a file of its own"
        raise InvalidSpecError(printable(message), hint=hint)
    converted = _Conversion(chosen[0], entry_point)
    others = [each for each in objects if each not in jobs]
    converted.notes += [f"{_title(each)}: dropped: create it with kubectl" for each in others]
    spec = converted.spec()
    try:
        load_mapping(spec)
    except SpecProblemsError as error:
        raise converted.in_its_terms(error) from None
    title = f"From the TFJob {spec['name']}. Check it with `distrun plan`."
    comments = (f"# {printable(each)}\n" for each in (title, *converted.notes))
    return "".join(comments) + dump(spec)


class _Fields:
    """Reads fields of a TFJob. What is wrong with one is kept, so that all is told at once."""

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        """What is wrong, each with its hint or ''."""

    def refuse(self, path: str, reason: str, hint: str = "") -> None:
        self.refusals[f"{printable(path)}: {printable(reason)}"] = one_line(hint)

    def mapping(self, value: Any, path: str) -> Json:
        if isinstance(value, dict):
            return value
        self.refuse(path, "it must be a mapping" if value is not None else "it is missing or empty")
        return {}

    def whole(self, fields: Json, key: str, path: str, least: int = 0) -> int | None:
        """Take a whole number out of the fields of `path`; None: it is not there."""
        value: int | None = fields.pop(key, None)
        if value is None or (type(value) is int and value >= least):
            return value
        reason = f"it must be a whole number of {least} or more, not {value!r}"
        self.refuse(f"{path}.{key}", reason)
        return None

    def text(self, value: Any, path: str) -> str:
        if isinstance(value, str):
            return value
        self.refuse(path, "it must be a text: put quotes around it")
        return ""

    def refused(self) -> InvalidSpecError:
        if len(self.refusals) == 1:
            ((message, hint),) = self.refusals.items()
            return InvalidSpecError(message, hint=hint or None)
        lines = (f"{each}; {hint}" if hint else each for each, hint in self.refusals.items())
        return InvalidSpecError("\n".join(lines))


class _Role:
    """The replicas of one role; `container` and `pod` lose what has been converted."""

    def __init__(self, name: str, path: str, fields: Json, read: _Fields) -> None:
        self.name, self.path, self._read = name, path, read
        before = len(read.refusals)
        replicas = read.whole(fields, "replicas", path)
        self.count = 1 if replicas is None else replicas
        self.restart = fields.pop("restartPolicy", None) or "Never"
        self.template = read.mapping(fields.pop("template", None), f"{path}.template")
        self.left = fields
        pod = self.template.pop("spec", None) if self.template else {}
        self.pod = read.mapping(pod, f"{path}.template.spec")
        self.metadata: Json = self.template.pop("metadata", None) or {}
        containers = self.pod.pop("containers", None) or []
        self.others = [each for each in containers if each.get("name") != _CONTAINER]
        own = [each for each in containers if each.get("name") == _CONTAINER]
        self.container_path = f"{path}.template.spec.containers[{_CONTAINER}]"
        if len(own) != 1 and len(read.refusals) == before:
            hint = "rename the one that runs the program"
            where = f"{path}.template.spec.containers"
            which = "several have" if own else "none has"
            read.refuse(where, f"{which} the name {_CONTAINER}", hint)
        if any(each.get("name") == CONTAINER for each in self.others):
            where = f"{path}.template.spec.containers[{CONTAINER}]"
            read.refuse(where, "distrun's own container has that name: rename it")
        self.container: Json = own[0] if own else {}
        self.words: list[str] = []
        self.env: dict[str, str] = {}
        self._elsewhere: dict[str, Json] = {}
        """The variables whose values only the cluster knows."""
        for at, each in enumerate(self.container.pop("env", None) or []):
            variable = read.text(each["name"], f"{self.container_path}.env[{at}].name")  # Y is none
            value = read.text(each.get("value", ""), f"{self.container_path}.env[{variable}].value")
            names = {found[2] for found in _VARIABLE.finditer(value)}
            if "valueFrom" in each or names & self._elsewhere.keys():
                known = {"value": _VARIABLE.sub(self._known, value)} if value else {}
                self.env.pop(variable, None)  # of two values, the last one holds
                self._elsewhere[variable] = {**each, **known}
            else:
                self.env[variable] = self.expand(value)
        if self._elsewhere:
            self.container["env"] = list(self._elsewhere.values())

    def _known(self, found: re.Match[str]) -> str:
        """Return a variable's value as Kubernetes reads it; the variable, if it is not known."""
        value = None if found[1] else self.env.get(found[2])
        return found[0] if value is None else value.replace("$", "$$")

    def expand(self, text: str) -> str:
        """Expand variables; what is none of them stays as it is, as `$(...)` of a shell does."""

        def value(found: re.Match[str]) -> str:
            if found[1]:
                return "$"
            if found[2] in self.env:
                return self.env[found[2]]
            is_elsewhere = found[2] == "TF_CONFIG" or found[2] in self._elsewhere
            # A shell's `$(cat x)` is no variable of a ConfigMap.
            may_be = "envFrom" in self.container and re.fullmatch(r"[-.\w]+", found[2])
            if is_elsewhere or may_be:
                why = f"is known in the pod only: read it in the program, or ${found[2]} in a shell"
                self._read.refuse(self.container_path, f"the value of {found[0]} {why}")
            return found[0]

        return _VARIABLE.sub(value, text)


class _Conversion(_Fields):
    """One TFJob. `notes` say what was guessed or dropped, each with the path of its field."""

    def __init__(self, job: Json, entry_point: Sequence[str]) -> None:
        super().__init__()
        self._job, self._entry_point = job, entry_point
        self.notes: list[str] = []
        self._spec: Json = {}
        self._roles: dict[str, _Role] = {}

    def spec(self) -> Json:
        """Return the spec. Raises InvalidSpecError with all that cannot be converted."""
        try:
            self._convert()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A value of another type than the API has there; an API server would refuse it.
            said = f"a field has not the form that TFJobs have: {printable(str(error))}"
            self.refusals[said] = "`kubectl apply --dry-run=server -f` names the field"
        for key, fields in (("name", self._spec), ("namespace", self._spec.get("kubernetes", {}))):
            if "$" in str(fields.get(key)) or not isinstance(fields.get(key, ""), str):
                self.refuse(f"metadata.{key}", f"it must be a name, not {fields[key]!r}")
        if self.refusals:
            raise self.refused()
        for each in sorted(set(_LABEL.findall(repr(self._spec)))):
            self._note("spec.tfReplicaSpecs", f"it names {each}, a label that distrun's pods lack")
        return self._spec

    def _convert(self) -> None:
        version, _ = self._job.pop("apiVersion", None), self._job.pop("kind")
        if version not in _VERSIONS:
            known = " and ".join(_VERSIONS)
            is_oldest = "replicaSpecs" in (self._job.get("spec") or ())
            hint = f"write kubeflow.org/v1: {_OF_V1ALPHA1 if is_oldest else _OF_LATER}"
            self.refuse("apiVersion", f"{version} is not known: distrun reads {known}", hint)
        metadata = self.mapping(self._job.pop("metadata", {}), "metadata")
        generated = str(metadata.pop("generateName", "job")).rstrip("-")
        self._spec["name"] = metadata.pop("name", None) or generated
        namespace, labels = metadata.pop("namespace", None), metadata.get("labels") or {}
        settings = {"namespace": namespace, "queue": labels.pop(QUEUE, None)}
        self._note_left({key: value for key, value in metadata.items() if value}, "metadata.")
        spec = self.mapping(self._job.pop("spec", None), "spec")
        self._note_left(self._job, "")
        if spec.pop("enableDynamicWorker", False):
            reason = "distrun replaces lost hosts by `restart`, and has no workers that come and go"
            self.refuse("spec.enableDynamicWorker", reason)
        self._read_roles(spec)
        if self._roles:
            self._guess_strategy()
        at, policy = "spec", spec
        if "runPolicy" in spec:
            at, policy = "spec.runPolicy", self.mapping(spec.pop("runPolicy"), "spec.runPolicy")
        self._spec["cluster"] = {role: {"count": each.count} for role, each in self._roles.items()}
        self._spec["hosts"] = "kubernetes"
        self._spec["kubernetes"] = {key: value for key, value in settings.items() if value}
        limit = self.whole(policy, "backoffLimit", at)
        if self._roles and all(each.container for each in self._roles.values()):
            self._convert_programs()
            self._convert_pods()
            self._convert_restarts(limit, f"{at}.backoffLimit")
        self._convert_policy(policy, at)
        self._convert_success(spec.pop("successPolicy", None) or "")
        for path, fields in {"spec": spec, at: policy}.items():
            self._note_left(fields, f"{path}.")
        cluster = self._spec["cluster"]
        for role, fields in cluster.items():
            if fields.keys() == {"count"}:
                cluster[role] = fields["count"]
        if "${" in repr(self._spec):
            self._spec["vars"] = "off"

    def in_its_terms(self, error: SpecProblemsError) -> InvalidSpecError:
        """Return the problems of the spec with the TFJob's fields in place of the spec's keys."""
        container = self._first.container_path
        fields = {
            "name": "metadata.name",
            "kubernetes.namespace": "metadata.namespace",
            "kubernetes.pod": f"{self._first.path}.template",
            "kubernetes.image": f"{container}.image",
            "kubernetes.gpus": f"{container}.resources.limits",
        }
        for role in self._roles.values():
            own = f"cluster.{role.name}"
            fields |= {own: role.path, f"{own}.pod": f"{role.path}.template"}
        lines = []
        for each in error.problems:
            key = max((one for one in fields if each.file.startswith(one)), key=len, default="")
            said = each.message.replace(key, fields[key]) if key else each.message
            place = fields.get(key, each.file)
            said = said if said.startswith(place) else f"{place}: {said}"
            is_of_spec = key.startswith("cluster.") and not key.endswith(".pod")
            lines.append(said if is_of_spec or not each.hint else f"{said}; {each.hint}")
        return InvalidSpecError("\n".join(lines))

    def _note(self, path: str, text: str) -> None:
        self.notes.append(f"{path}: {text}")

    def _note_left(self, fields: Json, path: str) -> None:
        for key in fields:
            self._note(f"{path}{key}", "dropped: distrun has nothing like it")

    def _read_roles(self, spec: Json) -> None:
        replicas = self.mapping(spec.pop("tfReplicaSpecs", None), "spec.tfReplicaSpecs")
        for written, fields in replicas.items():
            path = f"spec.tfReplicaSpecs.{written}"
            role = _ROLES.get(str(written).lower())
            if role is None or role in self._roles:
                known = "a TFJob has Chief, Master, Worker, PS and Evaluator"
                self.refuse(path, known if role is None else f"it is a second {role}")
                continue
            each = _Role(role, path, self.mapping(fields, path), self)
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
        if not self._roles and not self.refusals:
            self.refuse("spec.tfReplicaSpecs", "no role has replicas")
        if "chief" in self._roles and not self._roles.keys() & {"worker", "ps"}:
            only = self._roles["worker"] = self._roles.pop("chief")
            only.name = "worker"
            self._note(only.path, "is the role worker, because it is the only one that trains")

    @property
    def _first(self) -> _Role:
        """The role whose pods all others are like: the worker, or without one the chief."""
        return self._roles.get("worker") or next(iter(self._roles.values()))

    def _guess_strategy(self) -> None:
        has_ps = "ps" in self._roles
        served = (name for name, row in STRATEGIES.items() if Role.PS in row.roles)
        strategy = next(served) if has_ps else USUAL
        if "worker" not in self._roles:
            self.refuse("spec.tfReplicaSpecs", f"it has no Worker, which {strategy} needs")
        self._spec["strategy"] = strategy
        why = "it has parameter servers" if has_ps else "it has no parameter servers"
        self._note("spec.tfReplicaSpecs", f"guessed: strategy {strategy}, because {why}")
        if has_ps:
            self._spec["workers"] = "independent"
            why = "with a TFJob, too, one that exits 0 has finished"
            self._note("spec.tfReplicaSpecs", f"guessed: workers independent: {why}")

    # Programs ------------------------------------------------------------------------------

    def _convert_programs(self) -> None:
        for role in self._roles.values():
            role.words = self._words(role)
        words = [role.words for role in self._roles.values()]
        common = os.path.commonprefix(words)  # noqa: RUF071 - of lists, it compares their items
        if all(words) and not common:
            reason = "the roles run different programs, and distrun runs one"
            self.refuse("spec.tfReplicaSpecs", reason)
        for role in self._roles.values():
            rest = role.words[len(common) :]
            if rest:
                self._spec["cluster"][role.name]["args"] = rest
        program = self._spec["program"] = {"command": common, "sync": "off"}
        folders = {role.container.pop("workingDir", None) for role in self._roles.values()}
        if len(folders) > 1:
            reason = "the roles run in different folders, and distrun has one for all"
            self.refuse("spec.tfReplicaSpecs", reason)
        folder = folders.pop()
        if folder is None:
            why = "guessed: /, because the image's own is not known here"
            self._note(f"{self._first.container_path}.workingDir", why)
        program["workdir"] = folder or "/"
        self._convert_env(program)

    def _words(self, role: _Role) -> list[str]:
        command, args = (role.container.pop(key, None) or [] for key in ("command", "args"))
        if not (isinstance(command, list) and isinstance(args, list)):
            self.refuse(role.container_path, "command and args must be lists of words")
            return []
        for key, words in (("command", command), ("args", args)):
            for at, each in enumerate(words):
                words[at] = self.text(each, f"{role.container_path}.{key}[{at}]")
        command = command or self._entry_point
        if not command:
            why = "it is missing, and the entry point of the image is not known here"
            hint = """give that: --command 'python /app/train.py' (`docker inspect` shows it); if
                there is none, rename args to command"""
            self.refuse(f"{role.container_path}.command", why, hint)
        return [literal(role.expand(each)) for each in [*command, *args]]

    def _convert_env(self, program: Json) -> None:
        for role in self._roles.values():
            if role.env.pop("TF_CONFIG", None) is not None:
                self._note(f"{role.container_path}.env.TF_CONFIG", "dropped: distrun makes it")
        common = _common([role.env for role in self._roles.values()])
        if common:
            program["env"] = {name: literal(value) for name, value in common.items()}
        for role in self._roles.values():
            own = {name: literal(value) for name, value in _without(role.env, common).items()}
            if own:
                self._spec["cluster"][role.name]["env"] = own

    # Pods ----------------------------------------------------------------------------------

    def _convert_pods(self) -> None:
        settings = self._spec["kubernetes"]
        for role in self._roles.values():
            if not role.container.get("image"):
                self.refuse(f"{role.container_path}.image", "it is missing")
            for key in ("ports", "livenessProbe", "readinessProbe", "startupProbe", "stdin", "tty"):
                if role.container.pop(key, None) is not None:
                    why = "distrun chooses ports" if key == "ports" else "distrun watches the tasks"
                    self._note(f"{role.container_path}.{key}", f"dropped: {why}")
        self._convert_grace()
        overlays = {name: _overlay(role) for name, role in self._roles.items()}
        common = _common([*overlays.values()])
        own = {name: _without(each, common) for name, each in overlays.items()}
        container = common.get("container", {})
        settings["image"] = container.pop("image", self._first.container.get("image"))
        if "priorityClassName" in common.get("spec", {}):
            settings["priority_class"] = common["spec"].pop("priorityClassName")
        if any(own.values()):
            for name, each in own.items():
                self._spec["cluster"][name]["pod"] = _template(each)
        else:
            self._convert_resources(container, settings)
            if self._roles.keys() - {"chief", "worker"}:  # a TFJob has a pod for each replica
                settings["pods"] = sum(role.count for role in self._roles.values())
        if template := _template(common):
            settings["pod"] = template

    def _convert_resources(self, container: Json, settings: Json) -> None:
        """Convert what pods may use. If they ask for less than that, it stays as it is written."""
        resources = container.get("resources", {})
        limits = resources.get("limits") or {}
        if resources.get("requests", {}).items() <= limits.items():
            resources.pop("requests", None)  # Kubernetes takes the limits
        if resources.keys() == {"limits"}:
            for key, own in _KEYS.items():
                text = str(limits.get(key, ""))
                if text and own == "gpus" and not text.isdecimal():
                    where = f"{self._first.container_path}.resources.limits.{key}"
                    self.refuse(where, f"it must be a whole number, not '{text}'")
                elif text and re.fullmatch(QUANTITIES.get(own, ".*"), text):
                    del limits[key]
                    settings[own] = int(text) if own == "gpus" else text
            if not limits:
                del container["resources"]

    def _convert_grace(self) -> None:
        key = "terminationGracePeriodSeconds"
        found = {}
        for each in (each for each in self._roles.values() if key in each.pod):
            found[each.path] = self.whole(each.pod, key, f"{each.path}.template.spec") or 0
        if found:
            path = max(found, key=lambda each: found[each])
            self._spec["timeouts"] = {"grace": f"{found[path]}s"}
            if set(found.values()) != {found[path]} or len(found) < len(self._roles):
                self._note(f"{path}.template.spec.{key}", "holds for all roles: it is the longest")

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
        none: Json = {key: [] for key in job or () if key != "max"}  # roles have the rest, too
        for name, own in found.items():
            if own != job:
                self._spec["cluster"][name]["restart"] = "never" if own is None else none | own

    def _restart(self, name: str, kind: str, limit: int | None) -> Json | None:
        path = f"{self._roles[name].path}.restartPolicy"
        if kind not in ("Never", "OnFailure", "Always", "ExitCode"):
            self.refuse(path, f"{kind} is not a policy of a TFJob")
        if kind == "Never" or not limit:
            return None
        if kind == "Always":
            self._note(path, "guessed: restarts after failures; a task that exits 0 has finished")
        return {"max": limit, "never_on": ["1-127"]} if kind == "ExitCode" else {"max": limit}

    def _convert_policy(self, policy: Json, path: str) -> None:
        if policy.pop("managedBy", None) not in (None, "", _OPERATOR):
            self.refuse(f"{path}.managedBy", "another controller is to run it")
        at = f"{path}.schedulingPolicy"
        scheduling = self.mapping(policy.pop("schedulingPolicy", None) or {}, at)
        for key, own, fields, where in (
            ("scheduleTimeoutSeconds", "start", scheduling, at),
            ("activeDeadlineSeconds", "run", policy, path),
        ):
            seconds = self.whole(fields, key, where, least=1)
            if seconds is not None:
                self._spec.setdefault("timeouts", {})[own] = f"{seconds}s"
        for key, own in (("queue", "queue"), ("priorityClass", "priority_class")):
            wanted = scheduling.pop(key, None)
            if wanted and self._spec["kubernetes"].setdefault(own, wanted) != wanted:
                self._note(f"{at}.{key}", f"dropped: that of the {_STRONGER[own]} counts")
            elif wanted and key == "queue":
                self._note(f"{at}.queue", "guessed: a local queue of Kueue, and not of Volcano")
        for fields, key, why in (
            (scheduling, "minAvailable", "distrun starts all tasks or none"),
            (policy, "cleanPodPolicy", "no pod outlives the job, and its logs stay here"),
            (policy, "ttlSecondsAfterFinished", "no pod outlives the job"),
            (policy, "suspend", "`distrun launch` starts the job; with a queue, Kueue holds it"),
        ):
            if fields.pop(key, None):
                self._note(f"{at if fields is scheduling else path}.{key}", f"dropped: {why}")
        self._note_left(scheduling, f"{at}.")

    def _convert_success(self, policy: str) -> None:
        if policy not in ("", "AllWorkers"):
            self.refuse("spec.successPolicy", f"{policy} is not a policy of a TFJob")
        has_chief, has_ps = (each in self._roles for each in ("chief", "ps"))
        by_default = "chief" if has_chief else "worker0"
        # A chief decides with each policy; `all` would wait for an evaluator, too.
        all_workers = "all" if has_ps else "strategy"
        self._spec["success"] = all_workers if policy and not has_chief else by_default


def _title(document: Json) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    words = (document.get("kind") or "a mapping without kind", name)
    return " ".join(str(each) for each in words if each is not None)


def _overlay(role: _Role) -> Json:
    """What a role asks of its pods, and of the container of its program."""
    own = ("labels", "annotations")
    metadata = {key: role.metadata[key] for key in own if role.metadata.get(key)}
    container = {key: value for key, value in role.container.items() if key != "name"}
    spec = dict(role.pod)
    if "serviceAccountName" in spec or "serviceAccount" in spec:
        spec.setdefault("automountServiceAccountToken", True)
    if role.others:
        spec["containers"] = role.others
    return {"metadata": metadata, "spec": spec, "container": container}


def _common(overlays: list[Json]) -> Json:
    found = {}
    for key, value in overlays[0].items():
        values: list[Any] = [each.get(key) for each in overlays]
        if all(each == value for each in values):
            found[key] = value
        elif all(isinstance(each, dict) for each in values) and (inner := _common(values)):
            found[key] = inner
    return found


def _without(overlay: Json, common: Json) -> Json:
    """What an overlay has beside what is common: merged, they are the overlay."""
    return {
        key: _without(value, common[key]) if key in common else value
        for key, value in overlay.items()
        if common.get(key) != value
    }


def _template(overlay: Json) -> Json:
    spec = {key: value for key, value in overlay.get("spec", {}).items() if key != "containers"}
    own = [each for each in (overlay.get("container"),) if each]
    containers = [*own, *overlay.get("spec", {}).get("containers", ())]
    if containers:
        spec["containers"] = containers
    parts = (("metadata", overlay.get("metadata")), ("spec", spec))
    return {key: value for key, value in parts if value}
