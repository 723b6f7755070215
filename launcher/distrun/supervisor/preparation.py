"""From a spec to a plan: what the hosts have, ports held there, and everything decided."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from distrun import events, plan
from distrun.agent import wire
from distrun.errors import HostError
from distrun.supervisor.addresses import addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distrun.spec.model import Spec

_REMOTE_PYTHON = "python3"


class Preparation:
    """Collects the hosts' answers until :attr:`plan` can be made.

    Used by the supervisor for `launch` and in the command's own process for `plan`.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._placement = plan.place(spec)
        self.hosts = tuple({placed.host.name: placed.host for placed in self._placement}.values())
        self.remote = {host.name for host in self.hosts if not host.is_local}
        """Names of those that ssh is used for."""
        self._hellos: dict[str, wire.Hello] = {}
        self._needs = plan.ports_needed(spec, self._placement)
        self._free: dict[str, list[int]] = {}

    def on_hello(self, host: str, hello: wire.Hello) -> wire.HoldPorts:
        """What a host has; answers with the ports it is to hold."""
        self._hellos[host] = hello
        need = self._needs.get(host, plan.PortNeed())
        first, last = self._spec.port_range or (0, 0)
        return wire.HoldPorts(need.free, list(need.wanted), first, last)

    def on_ports(self, host: str, held: wire.PortsHeld) -> plan.Plan | None:
        """The ports a host holds; the plan once all hosts have answered.

        Raises:
            InvalidSpecError: the plan cannot be, see :func:`distrun.plan.make`.
        """
        self._free[host] = held.chosen
        if len(self._free) < len(self.hosts):
            return None
        dialled = addresses(self._hellos, self.remote)
        facts = {name: self._facts(name, dialled[name]) for name in self._hellos}
        return plan.make(self._spec, self._placement, facts, self._free)

    def _facts(self, host: str, address: str | None) -> plan.HostFacts:
        """What a host said, as a plan needs it. What runs here has this command's environment."""
        hello = self._hellos[host]
        is_remote = host in self.remote
        environ = hello.environ if is_remote else dict(os.environ)
        return plan.HostFacts(
            cores=hello.cores,
            gpus=_visible_gpus(environ, hello.gpus),
            python=_REMOTE_PYTHON if is_remote else sys.executable,
            environ=environ,
            address=address,
            files=hello.files if is_remote and self._spec.program.sync_base else None,
        )


def environment(spec: Spec, task: plan.TaskPlan) -> dict[str, str]:
    """What is set for a task over what its host has, what is passed to it from here included."""
    if any(host.is_local for host in spec.hosts if host.name == task.host):
        return task.env  # here those are inherited
    # There they come over the link, and stand nowhere else.
    passed = (name for name in spec.program.pass_env if name in os.environ)
    return {**task.env, **{name: os.environ[name] for name in passed}}


def start_order(
    spec: Spec, task: plan.TaskPlan, job_id: str, attempt: int, cause: str
) -> wire.StartTask:
    """What a task's host is told. `cause` is what the attempt follows, of any but the first."""
    return wire.StartTask(
        task=task.name,
        attempt=attempt,
        argv=list(task.argv),
        workdir=task.workdir,
        log=task.log,
        env={
            **environment(spec, task),
            "DISTRUN_JOB_ID": job_id,
            "DISTRUN_ATTEMPT": str(attempt),
        },
        unset=list(task.unset),
        or_home=task.or_home,
        marker=_marker(attempt, cause) if attempt else "",
    )


def _marker(attempt: int, cause: str) -> str:
    """The line in a task's log behind which a new attempt's output begins."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"--- attempt {attempt}, {now}: restarted after {cause} ---"


def task_record(task: plan.TaskPlan) -> events.TaskRecord:
    """What the job's record says of a task."""
    return events.TaskRecord(
        name=task.name,
        role=task.role.value,
        index=task.index,
        host=task.host,
        address=task.address,
        proxy=task.proxy,
    )


def refusal(host: str, refused: wire.PortsRefused) -> HostError:
    """Why ports cannot be held, for people."""
    if refused.reason:
        return HostError(f"on {host} {refused.reason}", hint="widen `ports: {range: …}`")
    each = [
        f"port {port} on {host} is taken" + (f": {holder}" if holder else "")
        for port, holder in refused.taken.items()
    ]
    return HostError(
        "; ".join(each), hint="end what holds it, or give another address in `cluster`"
    )


def _visible_gpus(environ: Mapping[str, str], indices: list[int]) -> tuple[str, ...]:
    """The GPUs that tasks may use: the launching shell's CUDA_VISIBLE_DEVICES bounds them."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(index) for index in indices)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    # As CUDA reads it: what follows an invalid one is not seen.
    return tuple(names[: names.index("-1")] if "-1" in names else names)
