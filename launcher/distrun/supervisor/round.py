"""Rounds: from the hosts' facts to a plan that was checked.

In each round, hosts hold ports and receive files; then there is a plan, and the preflight checks
it. The first round of a job keeps nothing, and `plan` and `doctor` run it, too. Another round, for
a restart that needs other hosts, keeps what runs.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from distrun import plan
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Report, Subject
from distrun.errors import DistrunError, HostError, InvalidSpecError
from distrun.frozen import replace
from distrun.job import events
from distrun.lifecycle import MakePlan
from distrun.plan import split_address
from distrun.preflight import Check, Grade
from distrun.supervisor.hosts.reach import Reach, folder_variable
from distrun.supervisor.job_hosts import JobHosts

if TYPE_CHECKING:
    from distrun.supervisor.probe import Probe


_AWAITED = (Code.POD_QUEUED, Code.POD_UNSCHEDULABLE, Code.POD_NOT_CREATED, Code.POD_PENDING)


def is_awaited(cause: Cause) -> bool:
    """Whether a host has said why it is not there yet, and not that it has given up."""
    return cause.code in _AWAITED and not cause.seconds


class Round:
    """The round before a job starts: a failure of a host that it needs ends it.

    It takes one step after another, as far as the hosts' reports allow.
    """

    def __init__(self, hosts: JobHosts) -> None:
        self.hosts = hosts
        self._present: dict[str, plan.TaskPlan] = {}
        """The tasks of the present plan."""
        self._restarted: Collection[str] = ()
        """Those of them that start again."""
        self._involved: Collection[str] = hosts.names
        """The hosts whose ports and files it waits for."""
        self._replaceable: Collection[str] = hosts.spares
        """Those of them without which there may be a plan."""
        self.unreachable: dict[str, Cause] = {}
        self.failures: dict[str, Cause] = {}
        self.error: DistrunError | None = None
        self.plan: plan.Plan | None = None
        """It is to be used once the round has finished."""
        self.checks: tuple[Check, ...] | None = None
        self.is_finished = False
        self._running: dict[str, str] = {}
        """The GPUs of tasks that go on."""
        self._place_tasks(hosts.placement)
        self._ports_needed: dict[str, int] = {}
        """By host, how many tasks need a port there that is chosen for them."""
        self._unheld = set(hosts.names)
        """The hosts that neither hold their ports nor have failed."""
        self._probe: Probe | None = None

    @property
    def is_probing(self) -> bool:
        return self._probe is not None

    @property
    def waiting_for(self) -> list[str]:
        if self._probe is not None:
            return self._probe.waiting_for
        delivery = self.hosts.delivery
        waiting = self._unheld or ({*()} if delivery is None else delivery.waiting_for)
        return [host for host in self.hosts.names if host in waiting and host in self._involved]

    @property
    def waits_for_replaceable(self) -> bool:
        """Whether all that it waits for are hosts that it may not need."""
        waiting = () if self.is_finished else self.waiting_for
        return bool(waiting) and all(host in self._replaceable for host in waiting)

    @property
    def former_hosts(self) -> dict[str, str]:
        """The hosts that tasks were on before, by the task."""
        return {
            each.name: self._present[each.name].host
            for each in self.placement
            if each.name in self._present and self._is_moved(each)
        }

    def starts(self, task: plan.TaskPlan) -> bool:
        """Whether the plan starts a task. The others stay as they are."""
        return task.name in self._restarted or task.name not in self._present

    def _is_moved(self, placed: plan.Placed) -> bool:
        present = self._present.get(placed.name)
        return present is None or present.host != placed.host.name

    def receive(self, host: str, report: Report) -> None:
        """Handle a report that belongs to the round; ignore any other."""
        if self.is_finished:
            return
        if isinstance(report, protocol.Hello):
            self._on_hello(host)
        elif isinstance(report, protocol.PortsHeld):
            self._on_held(host, report.chosen)
        elif isinstance(report, protocol.PortsRefused):
            self._refuse(host, self.hosts.ports_refused(host, report))
        elif self._probe is not None:
            self._probe.receive(host, report)
        self.advance()

    def advance(self) -> None:
        """Take the next steps if the reports so far allow them."""
        if self.is_finished or self._unheld:
            return
        try:
            self._advance()
        except DistrunError as error:
            self._fail(error)

    def _advance(self) -> None:
        self.plan = self.plan or self._make_plan()
        if self.plan is None or not self._have_files():
            return
        self._probe = self._probe or self._start_probe(self.plan)
        if self._probe is not None:
            self.checks = self._probe.checks()
            if self.checks is None:
                return
            self._judge(self.checks)
        self.is_finished = True

    def _record_checks(self, checks: tuple[Check, ...]) -> None:
        """Record each check that did not pass, and the totals."""
        at, found = time.time(), Counter(check.grade for check in checks)
        for check in checks:
            if check.grade in (Grade.WARNING, Grade.FAILED):
                self.hosts.emit(events.PreflightFound(at=at, **vars(check)))
        failed, warnings = found[Grade.FAILED], found[Grade.WARNING]
        self.hosts.emit(
            events.PreflightEnded(at=at, checks=len(checks), failed=failed, warnings=warnings)
        )

    def _on_hello(self, host: str) -> None:
        if host in self.hosts.spares:
            self._unheld.discard(host)
        else:
            self._hold_ports(host, self.hosts.needs[host])

    def _on_held(self, host: str, ports: list[int]) -> None:
        if host in self._unheld:
            self.hosts.held_ports[host] += ports
            # An answer may be to the order of a round that was given up.
            if len(self._free_ports(host)) >= self._ports_needed[host]:
                self._unheld.remove(host)

    def _place_tasks(self, placement: tuple[plan.Placed, ...]) -> None:
        self.placement = placement
        self._used = {
            (each.host.name, split_address(each.address)[1]) for each in placement if each.address
        }

    def _free_ports(self, host: str) -> list[int]:
        """Return the ports that a host holds for no task yet."""
        held = self.hosts.held_ports.get(host, ())
        return [port for port in held if (host, port) not in self._used]

    def _hold_ports(self, host: str, need: plan.PortNeed) -> None:
        """Have a host hold ports, in addition to those that are free."""
        self._unheld.add(host)
        self._ports_needed[host] = len(self._free_ports(host)) + need.free
        first, last = self.hosts.spec.port_range or (0, 0)
        self.hosts.order(host, protocol.HoldPorts(need.free, list(need.wanted), first, last))

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        self.give_up(causes)
        wanted = (each for each in self.hosts.names if each not in self.hosts.spares)
        causes = {host: causes[host] for host in wanted if host in causes}
        self.unreachable.update(causes)
        self._unheld -= causes.keys()
        if causes and not (self.is_finished or self.hosts.checks_all):
            unusable = (
                Cause(Code.HOST_UNUSABLE, host=host, within=(cause,))
                for host, cause in causes.items()
            )
            self._fail(_error(Code.HOSTS_UNUSABLE, unusable, len(self.hosts.names)))
        self.advance()

    def fail(self, host: str, cause: Cause) -> None:
        """Continue without a host that was reached, or end."""
        if host in self.hosts.spares:
            self.give_up({host: cause})
            return
        self._refuse(host, cause)
        if self._probe is not None:
            self.is_finished = True  # an incomplete preflight says nothing
        self.advance()

    def give_up(self, causes: Mapping[str, Cause]) -> None:
        """Continue without the spares among these hosts."""
        for host in [each for each in causes if each in self.hosts.spares]:
            self._leave_out(host, causes[host])
        self.advance()

    def _leave_out(self, host: str, cause: Cause) -> None:
        """Continue without a spare, at whatever stage."""
        if host in self.hosts.left_out:
            return
        self.hosts.left_out[host] = cause
        self._unheld.discard(host)
        if self.hosts.delivery is not None:
            self.hosts.delivery.forget(host)
        if self._probe is not None:
            self._probe.forget(host)
        self.hosts.emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))

    def _refuse(self, host: str, cause: Cause) -> None:
        self._unheld.discard(host)
        self.failures.setdefault(host, cause)

    def _make_plan(self) -> plan.Plan | None:
        if self.failures and not self.hosts.checks_all:
            failures = (self.failures[each] for each in self.hosts.names if each in self.failures)
            raise _error(Code.SEVERAL, failures, len(self.failures))
        missing = self.unreachable.keys() | self.failures.keys()
        for host in missing:  # perhaps it was reached, and could hold none
            self.hosts.held_ports[host] = list(range(1, self.hosts.needs[host].free + 1))
        try:
            ports = {host: self._free_ports(host) for host in self.hosts.held_ports}
            return self.hosts.make_plan(self.placement, ports, self._running)
        except InvalidSpecError:
            if not missing:
                raise
            self.is_finished = True
            return None

    def _have_files(self) -> bool:
        delivery = self.hosts.delivery
        if delivery is None:
            return True
        for host, cause in list(delivery.refusals.items()):
            if host in self.hosts.spares:
                self._leave_out(host, files_refused({host: cause}, self.hosts.reaches).as_cause())
        if delivery.is_finished and delivery.refusals:
            raise files_refused(delivery.refusals, self.hosts.reaches)
        return delivery.is_finished

    def _start_probe(self, made: plan.Plan) -> Probe | None:
        missing = {*self.unreachable, *self.failures, *self.hosts.left_out}
        hosts = [host for host in self.hosts.names if host not in missing]
        is_needed = bool(hosts) and self.hosts.need_probe(hosts)
        if not (is_needed and self.hosts.has_preflight):
            if is_needed:
                self.hosts.emit(events.PreflightSkipped(at=time.time()))
            self._report_gpu_failures(hosts)
            return None
        from distrun.supervisor.probe import Probe

        used = {placed.host.name for placed in self.placement}
        idle = [host for host in hosts if host not in used]
        trials = self._trials(idle)
        return Probe(self.hosts, made, hosts, fresh=hosts, newcomers=idle, trials=trials)

    def _report_gpu_failures(self, hosts: Iterable[str]) -> None:
        """Report hosts whose GPUs are not known, if there is no preflight to do so."""
        at, subject, grade = time.time(), Subject.GPUS, Grade.WARNING
        for host in hosts:
            cause = self.hosts.hellos[host].gpu_failure
            if cause is not None:
                found = events.PreflightFound(
                    at=at, host=host, subject=subject, grade=grade, cause=cause
                )
                self.hosts.emit(found)

    def _trials(self, hosts: Iterable[str]) -> list[plan.TaskPlan]:
        """Return the tasks as hosts without one would run them, to try out the programs there."""
        tasks: list[plan.TaskPlan] = []
        for host in hosts:
            spec = self.hosts.specs[host]
            placement = [
                replace(
                    placed,
                    host=spec,
                    role=replace(placed.role, gpus=None),
                    address=f"{host}:{number}",
                )
                for number, placed in enumerate(self.hosts.placement, start=1)
                if spec.role in ("", placed.role.role.value)
            ]
            with contextlib.suppress(InvalidSpecError):
                tasks += self.hosts.make_plan(placement, {}).tasks
        return tasks

    def _judge(self, checks: tuple[Check, ...]) -> None:
        spares = self.hosts.spares
        failed = {
            check
            for check in checks
            if check.grade is Grade.FAILED
            # It is one of a spare, or of ports that only spares cannot reach.
            and (check.host in spares or (_callers(check) and {*spares} >= {*_callers(check)}))
        }
        # A spare that cannot be used is no failure.
        self.checks = tuple(
            replace(check, grade=Grade.WARNING) if check in failed else check for check in checks
        )
        self._record_checks(self.checks)
        for check in (each for each in checks if each in failed):
            is_spare = check.host in spares
            self._leave_out(check.host if is_spare else check.cause.hosts[0], check.cause)
        bad = [check for check in self.checks if check.grade is Grade.FAILED]
        if bad and not self.hosts.checks_all:
            code, host, within = Code.PREFLIGHT_FAILED, bad[0].host, (bad[0].cause,)
            self.error = HostError(cause=Cause(code, host=host, within=within, count=len(bad)))

    def _fail(self, error: DistrunError) -> None:
        self.error, self.is_finished = error, True


class NextRound(Round):
    """The round for the tasks of one restart; all others stay as they are.

    Args:
        present: the present plan.
        renewed: the tasks whose hosts have new agents, which hold no ports for them.
        rooms: how many tasks each usable host may have.
    """

    def __init__(
        self,
        hosts: JobHosts,
        request: MakePlan,
        present: plan.Plan,
        renewed: Collection[str],
        rooms: Mapping[str, int],
    ) -> None:
        super().__init__(hosts)
        self._unheld = set()
        self._spec, self.request, self._rooms = hosts.spec, request, rooms
        self._present = {task.name: task for task in present.tasks}
        self._restarted = request.tasks
        self._running = {
            task.name: task.env[plan.GPUS]
            for task in present.tasks
            if plan.GPUS in task.env and not self.starts(task)
        }
        self._renewed = {name for name in renewed if name in request.tasks}
        self.may_pass = False
        """Whether there may be a plan later with the same hosts."""
        self.unusable: dict[str, Cause] = {}
        """Why hosts that the plan would have needed cannot be used: another round is needed."""
        self._place_tasks(self._place(rooms))
        if not self.placement:
            homeless = [each for each in request.tasks if self._present[each].host not in rooms]
            self._end(Cause(Code.NO_ROOM, tasks=tuple(homeless) or request.tasks))
            return
        new = [
            each.host.name
            for each in self.placement
            if self._is_moved(each) or each.name in self._renewed
        ]
        self._new_hosts = tuple(dict.fromkeys(new))
        self._involved = self._replaceable = self._new_hosts
        self._hold_lacking_ports()
        self.advance()

    def uses(self, host: str) -> bool:
        return any(each.host.name == host for each in self.placement)

    def has_room_without(self, hosts: Collection[str], rooms: Mapping[str, int]) -> bool:
        """Whether the tasks have room on others than these hosts."""
        left = {name: room for name, room in rooms.items() if name not in hosts}
        return bool(self._place(left))

    def _on_hello(self, host: str) -> None:
        """Do nothing: a host that is new to the job is for a later round."""

    def give_up(self, causes: Mapping[str, Cause]) -> None:
        self.unusable.update(causes)
        self.is_finished |= bool(causes)

    def _end(self, cause: Cause, *, may_pass: bool = False) -> None:
        self.may_pass = may_pass
        super()._fail(HostError(cause=cause))

    def _place(self, rooms: Mapping[str, int]) -> tuple[plan.Placed, ...]:
        """Return the placement; a host has no room for a task that asks for more GPUs than left."""
        former = {each.name: each for each in self.hosts.placement}
        of_spec = {each.name: each.address for each in plan.place(self._spec)}
        present = [
            replace(
                former[task.name],
                address=of_spec[task.name] if task.name in self._renewed else task.address,
            )
            for task in self._present.values()
        ]
        left = dict(rooms)
        while placed := plan.place_again(self._spec, present, self.request.tasks, left):
            lacking = [each for each in self.hosts.lacking_gpus(placed) if left.get(each, 0) > 0]
            if not lacking:
                return placed
            left.update((host, left[host] - 1) for host in lacking)
        return ()

    def _hold_lacking_ports(self) -> None:
        """Use ports that are held already; hold more where these are too few, and the spec's."""
        needs = plan.ports_needed(self._spec, self.placement)
        explicit = [each for each in self.placement if each.name in self._renewed and each.address]
        for host in self._new_hosts:
            need = needs.get(host, plan.PortNeed())
            lacking = max(0, need.free - len(self._free_ports(host)))
            wanted = [split_address(each.address or "")[1] for each in explicit
                      if each.host.name == host]  # fmt: skip
            if lacking or wanted:
                self._hold_ports(host, replace(need, free=lacking, wanted=tuple(wanted)))

    def _refuse(self, host: str, cause: Cause) -> None:
        if host in self._unheld:
            self.give_up({host: cause})

    def _have_files(self) -> bool:
        delivery = self.hosts.delivery
        if delivery is None:
            return True
        refusals = delivery.refusals
        self.give_up({host: refusals[host] for host in self._new_hosts if host in refusals})
        return not self.is_finished and delivery.waiting_for.isdisjoint(self._new_hosts)

    def _start_probe(self, made: plan.Plan) -> Probe | None:
        starting = [task for task in made.tasks if self.starts(task)]
        busy = {task.host for task in made.tasks if task.address and not self.starts(task)}
        hosts = dict.fromkeys(task.host for task in starting if task.host not in busy)
        has_preflight = self.hosts.has_preflight and self.hosts.need_probe(hosts)
        if not self._new_hosts or not has_preflight:
            return None
        from distrun.supervisor.probe import Probe

        new = self._new_hosts
        return Probe(self.hosts, made, hosts, fresh=new, newcomers=new)

    def _judge(self, checks: tuple[Check, ...]) -> None:
        self._record_checks(checks)
        failed = [check for check in checks if check.grade is Grade.FAILED]
        blamed = {check.host: check.cause for check in failed if not _callers(check)}
        if failed and not blamed:
            pairs = [each for check in failed for caller in _callers(check)
                     for each in (check.host, caller)]  # fmt: skip
            host = max(pairs, key=lambda each: (pairs.count(each), each in self._new_hosts))
            about = (check for check in failed if host in (check.host, *_callers(check)))
            blamed = {host: next(about).cause}
        for host, cause in blamed.items():
            if host in self._new_hosts:
                continue
            # New hosts may only seem bad because of it. If others have no room, there is no plan.
            if self.uses(host) and self.has_room_without([host], self._rooms):
                self.give_up({host: cause})
            else:
                self._end(cause, may_pass=True)
            return
        self.give_up(blamed)

    def _fail(self, error: DistrunError) -> None:
        """Leave out a new host because of which no plan can be made."""
        cause = error.as_cause()
        named = [host for host in (*cause.hosts, cause.host) if host in self._new_hosts]
        suspects = named or self._new_hosts
        if suspects:
            # One of several: the next round shows whether it was another.
            self.give_up({suspects[-1]: cause})
        else:
            super()._fail(error)


def _callers(check: Check) -> tuple[str, ...]:
    """The hosts that could not reach the ports of the check's host."""
    return check.cause.hosts if check.cause.code is Code.PORTS_UNREACHABLE else ()


def files_refused(causes: Mapping[str, Cause], reaches: Mapping[str, Reach]) -> HostError:
    """Return the error for hosts that cannot have the program's files."""
    refusals = (
        Cause(Code.FILES_REFUSED, host=host, name=folder_variable(reaches[host]), within=(cause,))
        for host, cause in causes.items()
    )
    return _error(Code.FILES_REFUSED_BY_HOSTS, refusals, len(causes))


def _error(code: Code, causes: Iterable[Cause], total: int) -> HostError:
    """Return the error with that cause, or with one of that code around several."""
    within = tuple(causes)
    cause = within[0] if len(within) == 1 else Cause(code, count=total, within=within)
    return HostError(cause=cause)
