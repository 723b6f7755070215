"""Warnings about a spec that asks this machine for more GPUs than it has."""

from __future__ import annotations

import os

from distrun.agent.linux import facts
from distrun.agent.protocol import Cause, Code
from distrun.errors import InvalidSpecError
from distrun.plan import place, visible_gpus
from distrun.spec.model import Spec
from distrun.spec.problems import Mark, Problem
from distrun.words.causes import cause_advice, cause_text
from distrun.words.formats import format_count

_HINT = "lower `gpus`, or the number of tasks"


def find_gpu_warnings(spec: Spec) -> tuple[Problem, ...]:
    """Return at most one warning. Runs nvidia-smi if the spec asks this machine for GPUs."""
    host = spec.local_host
    if host is None:
        return ()
    try:
        asking = [each.role for each in place(spec) if each.host == host and each.role.gpus]
    except InvalidSpecError:  # a launch says that the tasks do not fit on the hosts
        asking = []
    if not asking and host.gpus is None:
        return ()
    asked = sum(each.gpus or 0 for each in asking)
    of_host = Mark("hosts[].gpus")
    mark = Mark(f"cluster.{asking[0].role.value}.gpus") if asking else of_host
    try:
        found = facts.gpus()
    except facts.NvidiaSmiError as error:
        cause = Cause(Code.GPUS_UNKNOWN, status=error.status, text=error.text)
        return (mark.problem(f"{host.name}: {cause_text(cause)}", cause_advice(cause) or ""),)
    missing = [str(each) for each in host.gpus or () if each not in found]
    if missing:
        which = f"{'GPU' if len(missing) == 1 else 'GPUs'} {', '.join(missing)}"
        message = f"{host.name} does not have {which}, which the spec lists"
        return (of_host.problem(message, "list the indices that nvidia-smi shows"),)
    available = len(visible_gpus(os.environ, found) if host.gpus is None else host.gpus)
    if asked <= available:
        return ()
    wanted = format_count(asked, "GPU")
    message = f"the tasks on {host.name} ask for {wanted}, and it has {available}"
    return (mark.problem(message, _HINT),)
