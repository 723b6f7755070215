"""The plans of a job: the first one, and those of restarts whose tasks need other hosts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.loop import Handle
from distrun.agent.protocol import Cause, Code, Report
from distrun.errors import HostError
from distrun.job import events
from distrun.job.folder import replace_file
from distrun.lifecycle import JobState, MakePlan
from distrun.plan import Plan, TaskPlan
from distrun.strategies import Role
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.round import NextRound, Round, is_awaited
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.running_tasks import RunningTasks

_HARMLESS_FAULTS = (
    *(Code.AGENT_TERMINATED, Code.GUARD_DIED, Code.LEASE_EXPIRED, Code.LINK_CLOSED),
    *(Code.POD_DELETED, Code.POD_PREEMPTED, Code.POD_ENDED, Code.POD_OUT_OF_MEMORY),
)
"""Faults after which a host may be used again, by a new agent."""
_WAIT_SHARE = 1 / 3
"""The part of what is left of `timeouts.start` in which a round waits only for hosts that it may
not need: the rest is for the other hosts."""
_SHORTEST_WAIT = 1.0
_WITHOUT_LIMIT = 300.0
"""The seconds that count as left if `timeouts.start` is off."""
_RETRY_SECONDS = 5.0
_FIRST_RETURN = 15.0
"""Seconds until a lost host is connected to again. One that shuts down, or whose memory is short,
still answers at first. What starts there then dies, too, and uses up restarts."""
_LAST_RETURN = 60.0
"""A host that is lost again and again is tried less and less often, but as often as that."""


class Planning:
    """Makes the first plan, then one for each request of the lifecycle, one at a time."""

    def __init__(self, job: RunningJob, hosts: JobHosts, running: RunningTasks) -> None:
        self._job, self._loop, self._emit, self.hosts = job, job.loop, job.emit, hosts
        self._running = running
        self._plan: Plan | None = None
        self._requests: list[MakePlan] = []
        self._round: Round | None = Round(hosts)
        self._end_of_wait = job.loop.call_at(None, self._give_up_silent)
        self._limit_wait()
        self._obstacles: dict[str, Cause] = {}
        """Why hosts that the job creates, as pods, do not come back."""
        self._returns: dict[str, tuple[Handle, float]] = {}
        """When to connect to lost hosts again, and how long each waits."""
        job.loop.checks.append(self._count_wait)

    @property
    def _first(self) -> Round | None:
        """The round before the start, while it lasts."""
        return self._round if self._plan is None else None

    def add(self, request: MakePlan) -> None:
        self._requests.append(request)
        self._plan_next()

    def receive(self, host: str, report: Report) -> None:
        if isinstance(report, protocol.Hello):
            self._obstacles.pop(host, None)
            self.hosts.add_hello(host, report)
        if self._round is not None:
            self._round.receive(host, report)
            self._finish()

    def advance(self) -> None:
        """Continue the round: files have been delivered, or refused."""
        if self._round is not None:
            self._round.advance()
            self._finish()

    def why_waiting(self) -> tuple[Cause, ...]:
        """Return what the hosts that the round waits for have not answered."""
        made, seconds = self._round, self._longest_wait
        if made is self._first:
            seconds = self.hosts.spec.timeouts.start or 0.0
        causes = {} if made is None else self._job.hosts.unanswered(made.waiting_for, seconds)
        return tuple(
            Cause(Code.HOST_NOT_PREPARED, host=host, within=(cause,))
            for host, cause in causes.items()
        )

    # Hosts that fail -----------------------------------------------------------------------

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        """Continue without hosts that could not be reached, or abort the job."""
        first, present = self._first, self._job.state
        for host, cause in causes.items():
            if first is None or not is_awaited(cause):
                self._reconnect_later(host, cause)
            if self.hosts.reaches[host].release is not None:
                self._obstacles[host] = cause._replace(seconds=0.0)
        if first is not None:
            awaited = [host for host, cause in causes.items() if is_awaited(cause)]
            if awaited and (why := self._why_no_host(causes[awaited[0]])) != present.waits_for_host:
                self._emit(events.PlanFailed(at=time.time(), restart=0, cause=why))
            self._job.hosts.connect({host: self.hosts.reconnect(host) for host in awaited})
            first.on_unreachable({each: causes[each] for each in causes.keys() - {*awaited}})
            self._finish()
            return
        for number, incident in self._job.state.incidents.items():
            told = incident.waits_for_host
            if told is not None and not incident.is_planning and self._why_no_host(told) != told:
                why = self._why_no_host(told)
                self._emit(events.PlanFailed(at=time.time(), restart=number, cause=why))

    def _why_no_host(self, otherwise: Cause) -> Cause:
        """Return what keeps away hosts that the job creates: first of all, a queue."""
        found = self._obstacles.values()
        return max(found, key=lambda each: each.code is Code.POD_QUEUED, default=otherwise)

    def leave_out(self, host: str, cause: Cause) -> None:
        """Make the first plan without a host, if that is a spare."""
        if (first := self._first) is not None and self._job.state.outcome is None:
            first.give_up({host: cause})
            self._finish()

    def on_lost(self, host: str, cause: Cause) -> None:
        self.hosts.remove(host)
        if host in self._job.state.hosts:
            self._reconnect_later(host, cause, self._job.state.hosts[host].fault)
        self.leave_out(host, cause)

    def restart(self, host: str) -> None:
        """Start the round again if it has that host, which cannot be used any more."""
        if isinstance(self._round, NextRound) and self._round.uses(host):
            self._requests.insert(0, self._round.request)
            self._round = None
            self._plan_next()

    def _reconnect_later(self, host: str, cause: Cause, fault: Cause | None = None) -> None:
        """Connect again to a host: after 15 s, or at once to its successor, then less often.

        Unless its disk was full, or its agent broke the protocol. A pod that was taken away has a
        successor each time.
        """
        if fault is not None and fault.code not in _HARMLESS_FAULTS:
            return
        is_first = host not in self._returns
        handle, wait = self._returns.get(host, (None, _FIRST_RETURN / 2))
        is_taken = is_awaited(cause) or lifecycle.is_host_preempted(fault or cause)
        wait = wait if is_taken else min(wait * 2, _LAST_RETURN)
        handle = handle or self._loop.call_at(None, partial(self._reconnect, host))
        is_silent = cause.code is Code.HOST_SILENT_TOO_LONG
        has_successor = self.hosts.reaches[host].release is not None and not is_silent
        is_new = has_successor and (is_first or is_taken)
        handle.move(self._loop.now() + (0.0 if is_new else wait))
        self._returns[host] = handle, wait

    def _reconnect(self, host: str) -> None:
        """Connect again to a host that was lost; if it answers, it can take over tasks."""
        state = self._job.state
        if state.outcome is not None or not state.has_restarts:
            return
        if self._plan is None:  # the first round goes on without it
            self._returns[host][0].move(self._loop.now() + _FIRST_RETURN)
        else:
            self._job.hosts.connect({host: self.hosts.reconnect(host)})

    def _limit_wait(self) -> None:
        """Determine for how long the round may wait for hosts that it may not need."""
        timer = self._job.timers.get(lifecycle.START)
        due = None if timer is None else timer.when
        share = (_WITHOUT_LIMIT if due is None else due - self._loop.now()) * _WAIT_SHARE
        self._longest_wait = self._wait_left = max(_SHORTEST_WAIT, float(round(share)))
        self._end_of_wait.cancel()

    def _count_wait(self) -> None:
        """Let that time pass only while the round waits for such hosts alone."""
        made, end = self._round, self._end_of_wait
        is_waiting = made is not None and made.waits_for_replaceable
        if is_waiting and end.when is None:
            end.move(self._loop.now() + self._wait_left)
        elif not is_waiting and end.when is not None:
            self._wait_left = end.when - self._loop.now()
            end.cancel()

    def _give_up_silent(self) -> None:
        """Give up hosts that have not answered for too long."""
        made, state = self._round, self._job.state
        if made is None or state.outcome is not None:
            return
        self._wait_left = _SHORTEST_WAIT
        waiting = made.waiting_for
        silent = self._job.hosts.unanswered(waiting, self._longest_wait)
        if made is self._first:
            silent = {**self._job.hosts.unreachable, **silent}
        elif isinstance(made, NextRound) and not made.has_room_without(waiting, _rooms(state)):
            self._limit_wait()
            return
        made.give_up(silent)
        self._finish()

    # Rounds --------------------------------------------------------------------------------

    def _plan_next(self) -> None:
        while self._requests and self._round is None and self._job.state.outcome is None:
            request, state = self._requests.pop(0), self._job.state
            if request.restart not in state.incidents or self._plan is None:
                continue
            renewed = {task.name for task in state.tasks.values() if state.has_new_agent(task)}
            self._limit_wait()
            self._round = NextRound(self.hosts, request, self._plan, renewed, _rooms(state))
            self._finish()

    def _finish(self) -> None:
        """Use the plan once it is made; make another without the hosts that cannot be used."""
        made = self._round
        if made is None or not made.is_finished:
            return
        self._round = None
        if self._job.state.outcome is not None:
            return
        if isinstance(made, NextRound):
            if made.request.restart in self._job.state.incidents:  # no other has taken its tasks
                self._finish_next(made)
        elif made.error is not None:
            self._job.abort(made.error)
        elif made.plan is not None:
            self._use(made, made.plan)
        self._plan_next()

    def _finish_next(self, made: NextRound) -> None:
        request = made.request
        if made.unusable:
            for host, cause in made.unusable.items():
                self._emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))
            self._requests.insert(0, request)
        elif made.error is not None:
            if made.may_pass:
                self._loop.call_at(self._loop.now() + _RETRY_SECONDS, partial(self.add, request))
            cause = made.error.as_cause()
            if cause.code is Code.NO_ROOM:
                cause = self._why_no_host(cause)
            self._emit(events.PlanFailed(at=time.time(), restart=request.restart, cause=cause))
        elif made.plan is not None:
            self._use(made, made.plan)

    def _use(self, made: Round, plan: Plan) -> None:
        """Write a plan down and use it."""
        job, path = self._job, self._job.folder.plan_file
        try:
            replace_file(path, json.dumps(plan.record(), indent=1) + "\n")
        except OSError as error:
            shown, errno = job.folder.shown(path), error.errno or 0
            cause = Cause(Code.PLAN_NOT_WRITTEN, path=shown, errno=errno)
            job.abort(HostError(cause=cause))
            return
        self.hosts.placement = made.placement
        self._plan, job.tasks = plan, {task.name: task for task in plan.tasks}
        job.hosts.set_logs_aside({task.name: task.host for task in plan.tasks})
        self._running.use_plan(plan.tasks)
        names = events.TaskRecord.__dataclass_fields__.keys() - {"log_start"}
        records = tuple(
            events.TaskRecord(
                **{name: getattr(task, name) for name in names}, log_start=self._log_start(task)
            )
            for task in plan.tasks
        )
        all_workers = job.state.all_workers
        workers = sum(task.role is Role.WORKER for task in plan.tasks)
        self._emit(
            events.JobPlanned(
                at=time.time(),
                tasks=records,
                kept=tuple(task.name for task in plan.tasks if not made.starts(task)),
                former_hosts=made.former_hosts,
                all_workers=all_workers if workers < all_workers else None,
            )
        )

    def _log_start(self, task: TaskPlan) -> int:
        """Return where the log on a task's host begins in its copy; an unfinished line is ended."""
        if not self._job.has_own_logs(task.host):
            return 0
        present = self._job.state.tasks.get(task.name)
        is_further = self._job.state.phase is not lifecycle.JobPhase.PREPARING
        if not is_further or present is None or present.host != task.host:
            return self._job.folder.end_line(task.name)
        is_new = self._job.state.has_new_agent(present)
        return self._job.folder.end_line(task.name) if is_new else present.log_start


def _rooms(state: JobState) -> dict[str, int]:
    """Return how many tasks each host may have that can be used now."""
    here = Counter(task.host for task in state.tasks.values())
    down = here - state.tasks_on_hosts
    return {
        # Nothing new is sent to a host whose link is lost; it may come back.
        host.name: (host.room or 0) + down[host.name] if host.link_lost is None else here[host.name]
        for host in state.hosts.values()
        if host.is_usable
    }
