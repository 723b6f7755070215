"""From a spec to a plan: what the hosts have, ports held there, and everything decided."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from distrun import events, plan
from distrun.agent import protocol
from distrun.cli.cause_text import cause_advice, cause_text
from distrun.errors import HostError
from distrun.supervisor.hosts.addresses import addresses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distrun.spec.model import Spec

_REMOTE_PYTHON = "python3"
_MOST_NAMED = 3


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
        self._hellos: dict[str, protocol.Hello] = {}
        self._needs = plan.ports_needed(spec, self._placement)
        self._free: dict[str, list[int]] = {}
        self._refused: dict[str, HostError] = {}

    def on_hello(self, host: str, hello: protocol.Hello) -> protocol.HoldPorts:
        """What a host has; answers with the ports it is to hold."""
        self._hellos[host] = hello
        need = self._needs.get(host, plan.PortNeed())
        first, last = self._spec.port_range or (0, 0)
        return protocol.HoldPorts(need.free, list(need.wanted), first, last)

    def on_ports(
        self, host: str, answer: protocol.PortsHeld | protocol.PortsRefused
    ) -> plan.Plan | None:
        """The ports a host holds, or why not; the plan once all hosts have answered.

        Raises:
            HostError: hosts cannot hold theirs; all of those are named.
            InvalidSpecError: the plan cannot be, see :func:`distrun.plan.make`.
        """
        if isinstance(answer, protocol.PortsRefused):
            self._refused[host] = self.refusal(host, answer)
        else:
            self._free[host] = answer.chosen
        if len(self._free) + len(self._refused) < len(self.hosts):
            return None
        if self._refused:
            raise together(self._refused, [each.name for each in self.hosts])
        dialled = addresses(self._hellos, self.remote)
        facts = {name: self._facts(name, dialled[name]) for name in self._hellos}
        return plan.make(self._spec, self._placement, facts, self._free)

    def refusal(self, host: str, refused: protocol.PortsRefused) -> HostError:
        """Why a host cannot hold its ports, for people."""
        each, hint = [], None
        for cause in refused.causes:
            again = self._same_machine(host, cause.port) if cause.port else None
            if again is not None:
                hint = "name each machine once in `hosts`, and give each task its own port"
                each.append(f"port {cause.port} is wanted on {again} and on {host}: one machine")
            else:
                hint = hint or cause_advice(cause)
                each.append(cause_text(cause._replace(host=host)))
        return HostError("; ".join(each), hint=hint)

    def _same_machine(self, host: str, port: int) -> str | None:
        """Another of the hosts that wants that port, and is that machine by another name."""
        hello = self._hellos[host]
        for name, other in self._hellos.items():
            wants = port in self._needs.get(name, plan.PortNeed()).wanted
            is_it = (other.hostname, other.address) == (hello.hostname, hello.address)
            if name != host and wants and is_it and hello.address:
                return name
        return None

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
) -> protocol.StartTask:
    """What a task's host is told. `cause` is what the attempt follows, of any but the first."""
    return protocol.StartTask(
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
        proxied=task.proxied,
    )


def together(found: Mapping[str, HostError], order: Sequence[str]) -> HostError:
    """One error for what is in the way on several hosts, told in their order."""
    errors = [found[host] for host in order if host in found]
    messages = [error.message for error in errors[:_MOST_NAMED]]
    if len(errors) > _MOST_NAMED:
        messages.append(f"and {len(errors) - _MOST_NAMED} more hosts (`distrun doctor`)")
    hints = dict.fromkeys(error.hint for error in errors if error.hint is not None)
    return HostError("; ".join(messages), hint="; ".join(hints) or None)


def _visible_gpus(environ: Mapping[str, str], indices: list[int]) -> tuple[str, ...]:
    """The GPUs that tasks may use: the launching shell's CUDA_VISIBLE_DEVICES bounds them."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(index) for index in indices)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    # As CUDA reads it: what follows an invalid one is not seen.
    return tuple(names[: names.index("-1")] if "-1" in names else names)
