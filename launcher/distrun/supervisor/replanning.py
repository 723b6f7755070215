"""A job's next plan, after tasks have lost their hosts: other hosts, ports, files, preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun import plan
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError
from distrun.frozen import replace
from distrun.plan import split_address
from distrun.preflight import Grade
from distrun.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from distrun.agent.protocol import Report
    from distrun.lifecycle import MakePlan
    from distrun.preflight import Check
    from distrun.spec.model import Spec
    from distrun.supervisor.preparation import Preparation
    from distrun.supervisor.probe import Probe


class Replanning:
    """Makes a plan for the tasks of one restart; all others stay as they are.

    Args:
        preparation: that of the launch, which knows the hosts.
        present: the present plan.
        renewed: the tasks whose hosts have new agents, which hold no ports for them.
        rooms: how many tasks each usable host may have.
        accusers: by each host, those that could not reach it, also while earlier plans were made.
    """

    def __init__(
        self,
        spec: Spec,
        preparation: Preparation,
        request: MakePlan,
        present: plan.Plan,
        renewed: Collection[str],
        rooms: Mapping[str, int],
        accusers: dict[str, set[str]],
    ) -> None:
        self._spec = spec
        self._accusers = accusers
        self._preparation = preparation
        self.request = request
        self._present = {task.name: task for task in present.tasks}
        self._renewed = {name for name in renewed if name in request.tasks}
        self.plan: plan.Plan | None = None
        self.failure: Cause | None = None
        """Why there is no plan."""
        self.may_pass = False
        """Whether there may be a plan later with the same hosts."""
        self._rooms = rooms
        self.avoided: tuple[str, ...] = ()
        """The hosts that the plan leaves out as requested."""
        self.unusable: dict[str, Cause] = {}
        """Why hosts that the plan would have needed cannot be used."""
        self._unheld: dict[str, int] = {}
        """The hosts that have not held all ports yet, and how many their tasks need."""
        self._probe: Probe | None = None
        self._placement = self._place(rooms)
        if not self._placement:
            self.failure = Cause(Code.NO_ROOM, tasks=request.tasks)
            return
        hosts = [
            each.host.name
            for each in self._placement
            if self._is_moved(each) or each.name in self._renewed
        ]
        self._new_hosts = tuple(dict.fromkeys(hosts))
        self._hold_ports()
        self.advance()

    @property
    def is_finished(self) -> bool:
        return self.plan is not None or self.failure is not None or bool(self.unusable)

    @property
    def former_hosts(self) -> dict[str, str]:
        """The hosts that tasks were on before, by the task."""
        return {
            each.name: self._present[each.name].host
            for each in self._placement
            if each.name in self._present and self._is_moved(each)
        }

    def starts(self, task: plan.TaskPlan) -> bool:
        """Whether the plan starts a task. The others stay as they are."""
        return task.name in self.request.tasks or task.name not in self._present

    @property
    def hosts(self) -> set[str]:
        """The hosts of the plan."""
        return {each.host.name for each in self._placement}

    @property
    def waiting_for(self) -> list[str]:
        """The hosts that have not answered the last order yet."""
        if self._unheld:
            return [host for host in self._new_hosts if host in self._unheld]
        if self._probe is not None:
            return self._probe.waiting_for
        delivery = self._preparation.delivery
        lacking = () if delivery is None else delivery.waiting_for
        return [host for host in self._new_hosts if host in lacking]

    @property
    def waits_for_new_hosts(self) -> bool:
        """Whether all that it waits for are new hosts."""
        waiting = self.waiting_for
        return bool(waiting) and all(host in self._new_hosts for host in waiting)

    def has_room_without(self, hosts: Collection[str], rooms: Mapping[str, int]) -> bool:
        """Whether the tasks have room on others than these hosts."""
        left = {name: room for name, room in rooms.items() if name not in hosts}
        return bool(self._place(left))

    def _place(self, rooms: Mapping[str, int]) -> tuple[plan.Placed, ...]:
        """Return the placement, without the hosts to avoid if that is possible."""
        former = {each.name: each for each in self._preparation.placement}
        moving = self.request.tasks
        of_spec = {each.name: each.address for each in plan.place(self._spec)}
        present = [
            replace(
                former[task.name],
                address=of_spec[task.name] if task.name in self._renewed else task.address,
            )
            for task in self._present.values()
        ]
        if self.request.avoid:
            others = {name: room for name, room in rooms.items() if name not in self.request.avoid}
            placed = plan.place_again(self._spec, present, moving, others)
            if placed is not None:
                self.avoided = self.request.avoid
                return placed
        return plan.place_again(self._spec, present, moving, rooms) or ()

    def _is_moved(self, placed: plan.Placed) -> bool:
        """Whether a task is new on its host."""
        present = self._present.get(placed.name)
        return present is None or present.host != placed.host.name

    def _hold_ports(self) -> None:
        """Use ports that are held already; hold more where these are too few."""
        strategy = STRATEGIES[self._spec.strategy]
        used = {split_address(each.address)[1] for each in self._placement if each.address}
        self._free_ports = {
            host: [port for port in held if port not in used]
            for host, held in self._preparation.held_ports.items()
        }
        for host in self._new_hosts:
            here = [each for each in self._placement if each.host.name == host]
            needed = [each for each in here if not each.address and each.role.has_ports(strategy)]
            lacking = len(needed) - len(self._free_ports.setdefault(host, []))
            if lacking > 0:
                self._unheld[host] = len(needed)
                unbound = any(each.role.expects_free_port for each in needed)
                need = plan.PortNeed(free=lacking, has_unbound=unbound)
                self._preparation.hold_ports(host, need)

    def receive(self, host: str, report: Report) -> None:
        """Handle a report of a host."""
        if self.is_finished:
            return
        if isinstance(report, protocol.PortsHeld) and host in self._unheld:
            self._preparation.held_ports[host] += report.chosen
            self._free_ports[host] += report.chosen
            # An answer may be to the order of a plan that was given up.
            if len(self._free_ports[host]) >= self._unheld[host]:
                del self._unheld[host]
        elif isinstance(report, protocol.PortsRefused) and host in self._unheld:
            self.unusable[host] = self._preparation.ports_refused(host, report)
        elif self._probe is not None:
            self._probe.receive(host, report)
        self.advance()

    def advance(self) -> None:
        """Take the next steps if the reports so far allow them."""
        delivery = self._preparation.delivery
        if delivery is not None:
            refused = [host for host in self._new_hosts if host in delivery.refusals]
            self.unusable.update((host, delivery.refusals[host]) for host in refused)
        if self.is_finished or self._unheld:
            return
        if delivery is not None and not delivery.waiting_for.isdisjoint(self._new_hosts):
            return
        try:
            made = self._preparation.make_plan(self._placement, self._free_ports)
            self._check(made)
        except DistrunError as error:
            self._blame(error.as_cause())

    def _blame(self, cause: Cause) -> None:
        """Leave out a new host because of which no plan can be made."""
        named = [host for host in (*cause.hosts, cause.host) if host in self._new_hosts]
        suspects = named or self._new_hosts
        if suspects:
            # One of several: the next attempt shows whether it was another.
            self.unusable[suspects[-1]] = cause
        else:
            self.failure = cause

    def _check(self, made: plan.Plan) -> None:
        """Check the network between the hosts, and the programs on the new ones."""
        if self._probe is None:
            starting = [task for task in made.tasks if self.starts(task)]
            busy = {task.host for task in made.tasks if task.address and not self.starts(task)}
            hosts = dict.fromkeys(task.host for task in starting if task.host not in busy)
            if not self._new_hosts or not self._preparation.needs_probe(hosts):
                self._finish(made)
                return
            self._made = made
            new = [host for host in self._new_hosts if host in hosts]
            self._probe = self._preparation.start_probe(
                made, hosts, inspected=new, newcomers=self._new_hosts
            )
        checks = self._probe.checks()
        if checks is not None:
            self._judge(checks)

    def _judge(self, checks: tuple[Check, ...]) -> None:
        self._preparation.record_checks(checks)
        failed = [check for check in checks if check.grade is Grade.FAILED]
        for check in failed:
            if check.cause.code is Code.PORTS_UNREACHABLE:
                self._accusers.setdefault(check.host, set()).update(check.cause.hosts)
        old = self._failing_old_host(failed)
        if old is not None:
            self._continue_without(*old)
            return
        for check in failed:
            self.unusable.update((host, check.cause) for host in self._blamed(check))
        if not self.unusable:
            self._finish(self._made)

    def _failing_old_host(self, failed: Collection[Check]) -> tuple[str, Cause] | None:
        """Return the host that most failures are about, if some concern no new host; and why.

        New hosts may only seem bad because of it.
        """
        of_old: dict[str, Cause] = {}
        pairs: list[str] = []
        for check in failed:
            callers = check.cause.hosts if check.cause.code is Code.PORTS_UNREACHABLE else ()
            pairs += [host for caller in callers for host in (check.host, caller)]
            old = [host for host in callers if host not in self._new_hosts]
            if check.host in self._new_hosts or (callers and not old):
                continue
            for host in (check.host, *old):
                of_old.setdefault(host, check.cause)
            if not callers:
                return check.host, check.cause
        return max(of_old.items(), key=lambda item: pairs.count(item[0]), default=None)

    def _continue_without(self, host: str, cause: Cause) -> None:
        """Leave out a host that is not new if others have room; otherwise there is no plan now."""
        if host in self.hosts and self.has_room_without([host], self._rooms):
            self.unusable[host] = cause
        else:
            self.failure, self.may_pass = cause, True

    def _blamed(self, check: Check) -> Collection[str]:
        """Return the new hosts that a failed check speaks against.

        No new host is left out because of what a single other one says of it.
        """
        callers = check.cause.hosts if check.cause.code is Code.PORTS_UNREACHABLE else ()
        are_new = bool(callers) and all(host in self._new_hosts for host in callers)
        if check.host in self._new_hosts:
            is_doubtful = are_new and len(self._accusers[check.host]) == 1
            return callers if is_doubtful else [check.host]
        return callers

    def _finish(self, made: plan.Plan) -> None:
        self._preparation.placement = self._placement
        self.plan = made
