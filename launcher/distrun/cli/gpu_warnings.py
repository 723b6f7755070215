"""Warnings about a spec that asks this machine for more GPUs than it has."""

from __future__ import annotations

import os

from distrun.agent.linux import facts
from distrun.agent.protocol import Cause, Code
from distrun.errors import InvalidSpecError
from distrun.plan import place, visible_gpus
from distrun.spec.model import Spec
from distrun.spec.nodes import Mapping, Sequence
from distrun.spec.problems import Mark, Problem, Problems
from distrun.spec.yamlnodes import parse
from distrun.words.causes import cause_advice, cause_text
from distrun.words.formats import format_count

_HINT = "lower `gpus`, or the number of tasks"


def find_gpu_warnings(spec: Spec, shown: str) -> tuple[Problem, ...]:
    """Return at most one warning. Runs nvidia-smi if the spec asks this machine for GPUs.

    `shown`: the spec's file, as messages name it.
    """
    host = spec.local_host
    if host is None:
        return ()
    try:
        asked = sum(each.role.gpus or 0 for each in place(spec) if each.host == host)
    except InvalidSpecError:  # a launch says that the tasks do not fit on the hosts
        asked = 0
    if not asked and host.gpus is None:
        return ()
    mark = _mark(spec.source, shown)
    try:
        found = facts.gpus()
    except facts.NvidiaSmiError as error:
        cause = Cause(Code.GPUS_UNKNOWN, status=error.status, text=error.text)
        return (mark.problem(f"{host.name}: {cause_text(cause)}", cause_advice(cause) or ""),)
    missing = [str(each) for each in host.gpus or () if each not in found]
    if missing:
        which = f"{'GPU' if len(missing) == 1 else 'GPUs'} {', '.join(missing)}"
        message = f"{host.name} does not have {which}, which the spec lists"
        return (mark.problem(message, "list the indices that nvidia-smi shows"),)
    available = len(visible_gpus(os.environ, found) if host.gpus is None else host.gpus)
    if asked <= available:
        return ()
    wanted = format_count(asked, "GPU")
    message = f"the tasks on {host.name} ask for {wanted}, and it has {available}"
    return (mark.problem(message, _HINT),)


def _mark(source: str, shown: str) -> Mark:
    """The place of the first `gpus` of a role or a host; the file, if `--set` has added it."""
    root = parse(source, shown, Problems())
    for section in ("cluster", "hosts"):
        entry = root.get(section) if isinstance(root, Mapping) else None
        value = None if entry is None else entry.value
        if isinstance(value, Mapping):
            inner = [each.value for each in value.entries]
        else:
            inner = list(value.items) if isinstance(value, Sequence) else []
        for each in inner:
            gpus = each.get("gpus") if isinstance(each, Mapping) else None
            if gpus is not None and getattr(gpus.value, "text", "") != "0":
                return gpus.value.mark
    return Mark(shown)
