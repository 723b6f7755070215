"""The keys of `kubernetes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrun.frozen import Frozen
from distrun.spec.keys.common import count
from distrun.spec.scalars import Integer, Text
from distrun.spec.schema import FAILED, Key, MappingSchema, mismatch
from distrun.spec.yamlnodes import Mapping, Node, Scalar

if TYPE_CHECKING:
    from distrun.spec.problems import Problems
    from distrun.spec.schema import JsonSchema

_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


class Overlay(Frozen):
    """A part of a pod's manifest, taken as it is written; reads as what JSON has."""

    expected: str = "a mapping such as {spec: {nodeSelector: {pool: gpu}}}"

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Mapping):
            return mismatch(node, path, self.expected, problems)
        unknown = [each.key for each in node.entries if each.key.text not in ("metadata", "spec")]
        for key in unknown:
            message = f"{path} is the template of a pod, and has no {key.text}"
            problems.add(key.mark, message, f"write it in {path}.spec or {path}.metadata")
        return FAILED if unknown else _plain(node)

    def json_schema(self) -> JsonSchema:
        return {"type": "object", "propertyNames": {"enum": ["metadata", "spec"]}}


def _plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {each.key.text: _plain(each.value) for each in node.entries}
    return node.value if isinstance(node, Scalar) else [_plain(each) for each in node.items]


def _name(expected: str) -> Text:
    return Text(expected=expected, least=1, pattern=_NAME)


def _quantity(expected: str, pattern: str) -> Text:
    return Text(expected=expected, verbatim=True, least=1, pattern=pattern)


KUBERNETES_JOB = MappingSchema(
    expected="a mapping such as {image: IMAGE, cpus: 4}",
    keys=(
        Key("image", Text(expected="an image's name", least=1, pattern=r"[^-\s]\S*"),
            ("tensorflow/tensorflow:2.19.0",), required=True,
            help="The image of the pods. It needs a python3 and what the program imports."),
        Key("namespace", _name("a namespace"), ("team",), "the context's",
            help="The namespace of the pods, as for `kubectl --namespace`."),
        Key("context", Text(expected="a context's name", least=1), ("cluster",), "the current one",
            help="The context of your kubectl's configuration, as for `kubectl --context`."),
        Key("pods", count(1), (4,), "one for each chief and worker, and the spares",
            help="How many pods to create. Tasks of other roles run beside the first ones."),
        Key("cpus", _quantity("a number of CPUs such as 4 or 500m", r"[0-9]+(\.[0-9]+)?m?"),
            (4, "500m"), "the namespace's",
            help="How many CPUs each pod asks for and may use."),
        Key("memory", _quantity("a size such as 8Gi", r"[0-9]+(\.[0-9]+)?([KMGTP]i|[kMGTP])?"),
            ("8Gi",), "the namespace's",
            help="How much memory each pod asks for and may use."),
        Key("gpus", Integer(least=0, most=1024), (1,), "none",
            help="How many GPUs each pod has (nvidia.com/gpu). Ask for others in `pod`."),
        Key("queue", _name("a queue's name"), ("team-queue",), "none",
            help="Kueue's local queue, which admits the pods."),
        Key("priority_class", _name("a priority class"), ("low",), "the cluster's default",
            help="The priority class of the pods."),
        Key("pod", Overlay(), ({"spec": {"nodeSelector": {"pool": "gpu"}}},), "`{}`",
            help="What is merged into the template of the pods as it is written: `metadata` and "
            "`spec` of a PodTemplateSpec. Containers, volumes and variables are merged by their "
            "names; the program runs in the container `distrun`, which needs no name here."),
    ),
)  # fmt: skip
