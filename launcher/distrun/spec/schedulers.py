"""What a job asks of Slurm and of Kubernetes: the sections `slurm` and `kubernetes`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from distrun.frozen import Frozen
from distrun.spec.common_values import VERBATIM, count, list_hint
from distrun.spec.nodes import Mapping, Node, Scalar, Sequence
from distrun.spec.problems import Problems, quoted
from distrun.spec.scalars import Boolean, Duration, Integer, Size, Text
from distrun.spec.schema import FAILED, JsonSchema, ListOf, Made, MapOf, OneOf, key, mismatch

_OPTION_PATTERN = r"[a-z][a-z0-9-]*"
_SAME_NAME = ("partition", "account", "qos", "nodes", "time", "exclusive", "constraint", "requeue")
_OWN_KEYS = {
    **{each: each for each in _SAME_NAME},
    "gpus-per-node": "gpus_per_node",
    "cpus-per-task": "cpus_per_task",
    "mem": "mem_per_node",
    "no-requeue": "requeue",
    "signal": "signal_before_end",
}
"""Options of sbatch for which there is a key."""
_SET = ("job-name", "ntasks", "ntasks-per-node", "open-mode", "output", "error", "no-kill", "chdir")
"""Options that distrun sets itself, or that would move what it reads."""
_NO_JOB = ("wrap", "parsable", "test-only", "wait", "help", "usage", "version", "quiet", "verbose")
_MORE = (
    *("gres", "nodelist", "exclude", "reservation", "dependency", "begin", "licenses", "comment"),
    *("mail-user", "mail-type", "mem-per-cpu", "mem-per-gpu", "gpus-per-task", "tmp", "switches"),
)
"""Options for `slurm.options` that people write as keys."""
_AS_KEYS = {
    **{each: f"write it as slurm.options.{each}" for each in _MORE},
    **dict.fromkeys(_SET, "remove it: distrun sets it itself"),
    **{option: f"write it as slurm.{key}" for option, key in _OWN_KEYS.items()},
    "gpus": "write it as slurm.gpus_per_node",
}
SLURM_HINTS = {**_AS_KEYS, **{name.replace("-", "_"): hint for name, hint in _AS_KEYS.items()}}
"""Hints for unknown keys that are options of sbatch."""
_NO_OPTION = "is not an option of a job; write a long one of sbatch(1), such as comment"
_REFUSED = {
    "gpus": "counts those of all nodes together; write slurm.gpus_per_node",
    "array": "makes a job array, which distrun does not support; submit each job by itself",
    **{option: f"has a key of its own; write slurm.{key}" for option, key in _OWN_KEYS.items()},
    **dict.fromkeys(_SET, "is set by distrun itself; remove it"),
    **dict.fromkeys(_NO_JOB, _NO_OPTION),
}
"""What is wrong with options that `slurm.options` does not take."""
_OF_POD = (
    *("nodeSelector", "tolerations", "affinity", "volumes", "imagePullSecrets", "initContainers"),
    *("containers", "securityContext", "hostNetwork", "runtimeClassName", "schedulerName"),
)
KUBERNETES_HINTS = {
    **{each: f"write it as kubernetes.pod.spec.{each}" for each in _OF_POD},
    **{each: f"write it as kubernetes.pod.metadata.{each}" for each in ("labels", "annotations")},
    **dict.fromkeys(
        ("volumeMounts", "envFrom", "imagePullPolicy"),
        "write it in kubernetes.pod.spec.containers, in an item without a name",
    ),
    "resources": "write cpus, memory and gpus",
}
"""Hints for unknown keys that are those of a pod's manifest."""


def _word(expected: str, least: int = 1, pattern: str = r"[^\n\r]+") -> Text:
    """A value in a line of the batch script."""
    return Text(expected=expected, verbatim=True, least=least, pattern=pattern, form="on one line")


_OPTIONS = MapOf(
    value=_word(VERBATIM.expected, 0, r"[^\n\r]*"),
    expected="a mapping such as {comment: night, mail-type: END}",
    noun="option",
    name=Text(
        pattern=f"(?!(?:{'|'.join(_REFUSED)})$){_OPTION_PATTERN}",
        check=lambda name: (
            _REFUSED.get(name) or (None if re.fullmatch(_OPTION_PATTERN, name) else _NO_OPTION)
        ),
    ),
)
_SETUP = ListOf(
    item=Text(expected="a line of shell", least=1),
    expected="a list such as ['module load cuda']",
    noun="line",
    text_hint=lambda text: list_hint(f"'{text}'") if "'" not in text else "",
)
_GPUS = OneOf(
    number=Integer(least=0, most=1024, description="a number of GPUs"),
    text=Text(
        expected="a type and a number such as 'a100:4'", pattern=r"[A-Za-z0-9_.-]+:[0-9]{1,4}"
    ),
)


# fmt: off
class SlurmSpec(Frozen, kw_only=True):
    """What the job asks Slurm for. None: what Slurm gives by default."""

    partition: str | None = key(_word("a partition's name"), None, "the cluster's default",
        examples=("gpu",), help="The partition whose nodes run the job.")
    account: str | None = key(_word("an account's name"), None, "your default account",
        examples=("physics",), help="The account that the job is charged to.")
    qos: str | None = key(_word("the name of a QOS"), None, "your default QOS",
        examples=("long",), help="The quality of service.")
    nodes: int | None = key(count(1), None, "one for the chief and for each worker, and the spares",
        examples=(4,),
        help="How many nodes the job gets. Where tasks have `gpus`, as many of them share a "
        "node as `gpus_per_node` allows. Other roles share the nodes.")
    """None: it follows from the cluster, see :mod:`distrun.slurm.batch_script`."""
    time: float | None = key(Duration(unit="m"), None, "the partition's limit", examples=("12h",),
        help="How long one allocation may last, rounded up to whole minutes.")
    gpus_per_node: str | None = key(Made(_GPUS, str), None, "none", examples=(4, "a100:4"),
        help="How many GPUs the job gets on each node.")
    """A number, or a type and a number such as `a100:4`."""
    cpus_per_task: int | None = key(count(1), None, "the cluster's default", examples=(8,),
        help="How many cores the job gets for each task on a node.")
    mem_per_node: int | None = key(Size(unit="MiB"), None, "the partition's default",
        examples=("64GiB",), help="How much memory the job gets on each node.")
    """In bytes."""
    exclusive: bool = key(Boolean(), False, examples=(True,),
        help="Whether no other job runs on its nodes.")
    constraint: str | None = key(_word("features such as a100"), None, "none", examples=("a100",),
        help="Features that the nodes must have, as for `sbatch --constraint`.")
    requeue: bool = key(Boolean(), False, examples=(True,),
        help="Whether the job is queued again after the time limit, a preemption or the loss "
        "of its first node. It then continues as with `distrun resume`.")
    signal_before_end: float = key(Duration(), "2m",
        help="How long before the time limit the tasks are stopped as in a preemption, with "
        "SIGTERM, so that they can save. At most 18h.")
    options: dict[str, str] = key(_OPTIONS, {},
        examples=({"comment": "night", "mail-type": "END"},),
        help="More options of sbatch, by their long names. The value of an option without a "
        "value is true.")
    setup: tuple[str, ...] = key(_SETUP, (),
        examples=(["module load cuda", "source venv/bin/activate"],),
        help="Lines of shell at the beginning of the batch script. A shell runs them as they "
        "are written, on the first node.")
# fmt: on


_FORM: dict[str, Any] = {
    "metadata": {"labels": {}},
    "spec": {
        "containers": [{"env": [{"value": ""}], "volumeMounts": [{}], "resources": {}}],
        "initContainers": [{}],
        "volumes": [{}],
        "tolerations": [{}],
        "terminationGracePeriodSeconds": 0,
    },
}
"""What a template of distrun has itself, each with a value of its type."""
_CONTAINER = "distrun"
"""The name of the container in which tasks run."""
_SHARES_PROCESSES = ("hostPID", "shareProcessNamespace")
"""What a pod must not ask for: its first process has to be distrun's guard."""


class Overlay(Frozen):
    """A part of a pod's manifest, taken as it is written; reads as JSON."""

    expected: str = "a mapping such as {spec: {nodeSelector: {pool: gpu}}}"

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.expected, problems)
        unknown = [each.key for each in node.entries if each.key.text not in _FORM]
        for each in unknown:
            message = f"{path} is the template of a pod, and has no {each.text}"
            problems.add(each.mark, message, f"write it in {path}.spec or {path}.metadata")
        if unknown or not _has_form(node, _FORM, path, problems):
            return FAILED
        read = plain(node)
        faults = [*_faults(read.get("spec", {}))]
        for message, hint in faults:
            problems.add(node.mark, f"{path}.spec.{message}", hint)
        return FAILED if faults else json.dumps(read)

    def json_schema(self) -> JsonSchema:
        return {"type": "object", "propertyNames": {"enum": [*_FORM]}}


def _faults(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in a pod's spec, and what to do about it."""
    for each in filter(spec.get, _SHARES_PROCESSES):
        yield f"{each}: distrun ends all processes of its pods, and no others", "remove it"
    if spec.get("restartPolicy", "Never") != "Never":
        message = "restartPolicy: it is Never, so that a lost pod is replaced"
        yield message, "remove it, and write the section restart"
    for each in spec.get("containers", ()):
        own = {"command", "args"} & each.keys()
        if own and each.get("name", _CONTAINER) == _CONTAINER:
            message = f"containers: distrun has its own {min(own)} in its container"
            yield message, "write the program in program.command"
        if each.get("name", _CONTAINER) != _CONTAINER and not each.get("image"):
            message = f"containers: the container {each['name']} has no image"
            yield message, "give it one; the program's container needs no name: remove that"


def _has_form(node: Node, form: Any, path: str, problems: Problems) -> bool:
    """Whether what is to be merged with distrun's own template has the types of that."""
    if isinstance(form, dict) and isinstance(node, Mapping):
        own = ((each.key.text, each.value) for each in node.entries if each.key.text in form)
        return all(_has_form(each, form[name], f"{path}.{name}", problems) for name, each in own)
    if isinstance(form, list) and isinstance(node, Sequence):
        items = enumerate(node.items)
        return all(_has_form(each, form[0], f"{path}[{at}]", problems) for at, each in items)
    fits = (str, type(None)) if form == "" else (type(form),)
    if isinstance(node, Scalar) and type(node.value) in fits:
        return True
    words = {dict: "a mapping", list: "a list", int: "a whole number", str: "a text"}
    hint = "put quotes around it" if form == "" else ""
    mismatch(node, path, words[type(form)], problems, hint)
    return False


_BOOLEAN = re.compile("(y|Y|yes|Yes|YES|on|On|ON)|n|N|no|No|NO|off|Off|OFF")
"""Those of YAML 1.1, beside true and false."""


def plain(node: Node, *, is_manifest: bool = False) -> Any:
    """Return a value as kubectl reads it: null is none, and `0644` is octal.

    `is_manifest`: what only kubectl reads may use all of YAML 1.1: `<<` merges, and `yes` is true.
    """
    if isinstance(node, Sequence):
        return [plain(each, is_manifest=is_manifest) for each in node.items]
    if isinstance(node, Scalar):
        if is_manifest and node.plain and (word := _BOOLEAN.fullmatch(node.text)):
            return word[1] is not None
        is_octal = node.plain and re.fullmatch("0[0-7]+", node.text)
        return int(node.text, 8) if is_octal else node.value
    found = {each.key.text: plain(each.value, is_manifest=is_manifest) for each in node.entries}
    merged = found.pop("<<", None) if is_manifest else None
    for each in merged if isinstance(merged, list) else [merged]:
        found = {**each, **found} if isinstance(each, dict) else found
    return {name: value for name, value in found.items() if value is not None}


def _name(expected: str) -> Text:
    form = f"{expected}, in lower-case letters, digits and '-'"
    pattern = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
    return Text(expected=expected, least=1, pattern=pattern, form=form)


_NUMBER = r"(?!0+(?:\.0*)?(?:[^0-9.]|$))[0-9]+(?:\.[0-9]+)?"
QUANTITIES = {"cpus": f"{_NUMBER}m?", "memory": rf"{_NUMBER}(?:[KMGTP]i|[kMGTP])|[0-9]{{7,}}"}
"""As Kubernetes reads them; but no pod has 0, or 8 bytes."""


def _quantity(name: str, expected: str) -> Text:
    def problem(text: str) -> str | None:
        if re.fullmatch(QUANTITIES[name], text):
            return None
        size = re.fullmatch(r"([0-9.]+)\s*([KMGTP])(i?)B?", text, re.IGNORECASE)
        meant = f"{size[1]}{size[2].upper()}{size[3].lower()}" if size else ""
        hint = f"; write {meant}" if re.fullmatch(QUANTITIES[name], meant) else ""
        return f"must be {expected}, not {quoted(text)}{hint}"

    return Text(expected=expected, verbatim=True, least=1, pattern=QUANTITIES[name], check=problem)


# fmt: off
class KubernetesSpec(Frozen, kw_only=True):
    """The pods that the job creates. None: what the cluster's defaults are."""

    image: str = key(Text(expected="an image's name", least=1, pattern=r"[^-\s]\S*"),
        examples=("tensorflow/tensorflow:2.19.0",),
        help="The image of the pods. It needs a python3 and what the program imports.")
    namespace: str | None = key(_name("a namespace"), None, "the context's", examples=("team",),
        help="The namespace of the pods, as for `kubectl --namespace`.")
    context: str | None = key(Text(expected="a context's name", least=1), None, "the current one",
        examples=("cluster",),
        help="The context of your kubectl's configuration, as for `kubectl --context`.")
    pods: int | None = key(count(1), None, "one for each chief and worker, and the spares",
        examples=(4,),
        help="How many pods to create. Tasks of other roles run beside the first ones.")
    cpus: str | None = key(_quantity("cpus", "a number of CPUs such as 4 or 500m"), None,
        "the namespace's", examples=(4, "500m"),
        help="How many CPUs each pod asks for and may use.")
    memory: str | None = key(_quantity("memory", "a size with its unit such as 8Gi"), None,
        "the namespace's", examples=("8Gi",),
        help="How much memory each pod asks for and may use.")
    gpus: int | None = key(Integer(least=0, most=1024), None, "none", examples=(1,),
        help="How many GPUs each pod has (nvidia.com/gpu). Ask for others in `pod`.")
    queue: str | None = key(_name("a queue's name"), None, "none", examples=("team-queue",),
        help="Kueue's local queue, which admits the pods.")
    priority_class: str | None = key(_name("a priority class"), None, "the cluster's default",
        examples=("low",), help="The priority class of the pods.")
    service_account: str = key(_name("a service account"), "distrun", examples=("training",),
        help="With `distrun submit`: the service account of the supervisor's pod, which may do "
        "what docs/kubernetes.md lists.")
    volume_claim: str | None = key(_name("a claim's name"), None, "the pod's own disk",
        examples=("jobs",),
        help="With `distrun submit`: the PersistentVolumeClaim that keeps the job's folder. With "
        "it, a supervisor whose pod is lost continues in another one.")
    pod: str = key(Overlay(), "{}", examples=({"spec": {"nodeSelector": {"pool": "gpu"}}},),
        help="What is merged into the template of the pods as it is written: `metadata` and "
        "`spec` of a PodTemplateSpec. Containers, volumes and variables are merged by their "
        "names; the program runs in the container `distrun`, which needs no name here.")
    """JSON."""
# fmt: on
