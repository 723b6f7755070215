"""The plans of a job: the first one, and those of restarts whose tasks need other hosts."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError
from distrun.job import events
from distrun.strategies import Role
from distrun.supervisor.round import FirstRound, NextRound, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distrun.agent.loop import Handle, Loop
    from distrun.agent.protocol import Report
    from distrun.lifecycle import JobState, MakePlan
    from distrun.plan import Plan
    from distrun.supervisor.hosts.pool import HostPool
    from distrun.supervisor.job_hosts import JobHosts
    from distrun.supervisor.training_gap import TrainingGap

_HARMLESS_FAULTS = (
    *(Code.AGENT_TERMINATED, Code.GUARD_DIED, Code.LEASE_EXPIRED, Code.LINK_CLOSED),
    *(Code.POD_DELETED, Code.POD_PREEMPTED),
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
"""Seconds until a lost host is connected to anew. One that shuts down, or whose memory is short,
still answers at first. What starts there then dies, too, and uses up restarts."""
_LAST_RETURN = 60.0
"""A host that is lost again and again is tried less and less often, but as often as that."""


class Planning:
    """Makes the first plan, then one for each request of the lifecycle, one at a time.

    Args:
        pool: connects to the hosts.
        hosts: what is known of them.
        training: is interrupted when a further plan is begun.
        state: returns the present state of the job.
        start_left: returns the seconds that are left of `timeouts.start`; None: it is off.
        emit: called with the events for the record.
        use_plan: replaces the present plan. Returns the tasks for the record; None if the job was
            aborted instead.
        abort: called with why the job cannot start.
    """

    def __init__(  # noqa: PLR0913 - most have names
        self,
        loop: Loop,
        pool: HostPool,
        hosts: JobHosts,
        training: TrainingGap,
        *,
        state: Callable[[], JobState],
        start_left: Callable[[], float | None],
        emit: Callable[[events.Event], None],
        use_plan: Callable[[Plan], tuple[events.PlannedTask, ...] | None],
        abort: Callable[[DistrunError], None],
    ) -> None:
        self._loop, self._pool, self.hosts = loop, pool, hosts
        self._training, self._state, self._start_left = training, state, start_left
        self._emit, self._use_plan, self._abort = emit, use_plan, abort
        self._plan: Plan | None = None
        self._accusers: dict[str, set[str]] = {}
        """By each host, those that could not reach it while a plan was made."""
        self._requests: list[MakePlan] = []
        self._round: Round | None = FirstRound(hosts)
        self._end_of_wait = loop.call_at(None, self._give_up_silent)
        self._limit_wait()
        self._returns: dict[str, tuple[Handle, float]] = {}
        """When to connect to lost hosts anew, and how long each waits."""
        self._early_returns: list[str] = []
        """Those to connect to once there is a plan."""
        loop.checks.append(self._count_wait)

    def add(self, request: MakePlan) -> None:
        """Make a plan, once those before it are made."""
        self._requests.append(request)
        self._plan_next()

    def receive(self, host: str, report: Report) -> None:
        """Handle a report of a host that the round may wait for."""
        if isinstance(report, protocol.Hello):
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
        if isinstance(made, FirstRound):
            seconds = self.hosts.spec.timeouts.start or 0.0
        causes = {} if made is None else self._pool.unanswered(made.waiting_for, seconds)
        return tuple(
            Cause(Code.HOST_NOT_PREPARED, host=host, within=(cause,))
            for host, cause in causes.items()
        )

    # Hosts that fail -----------------------------------------------------------------------

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        """Continue without hosts that could not be reached, or abort the job."""
        for host in causes:
            self._reconnect_later(host)
        if isinstance(self._round, FirstRound):
            self._round.on_unreachable(causes)
            self._finish()

    def leave_out(self, host: str, cause: Cause) -> None:
        """Make the first plan without a host, if that is a spare."""
        if isinstance(self._round, FirstRound) and self._state().outcome is None:
            self._round.give_up({host: cause})
            self._finish()

    def on_lost(self, host: str, cause: Cause) -> None:
        """Note that a host is lost."""
        self.hosts.remove(host)
        if host in self._state().hosts:
            self._reconnect_later(host)
        self.leave_out(host, cause)

    def restart(self, host: str) -> None:
        """Begin the round anew if it has that host, which cannot be used any more."""
        if isinstance(self._round, NextRound) and self._round.uses(host):
            self._requests.insert(0, self._round.request)
            self._round = None
            self._plan_next()

    def _reconnect_later(self, host: str) -> None:
        """Connect anew to a host: after 15 s, then less and less often.

        Unless its disk was full, or its agent broke the protocol.
        """
        known = self._state().hosts.get(host)
        fault = None if known is None else known.fault
        if fault is not None and fault.code not in _HARMLESS_FAULTS:
            return
        handle, wait = self._returns.get(host, (None, _FIRST_RETURN / 2))
        wait = min(wait * 2, _LAST_RETURN)
        handle = handle or self._loop.call_at(None, partial(self._reconnect, host))
        handle.move(self._loop.now() + wait)
        self._returns[host] = handle, wait

    def _reconnect(self, host: str) -> None:
        """Connect anew to a host that was lost; if it answers it can take over tasks."""
        state = self._state()
        if state.outcome is not None or not state.has_restarts:
            return
        if self._plan is not None:
            self._pool.connect({host: self.hosts.reconnect(host)})
        else:
            self._early_returns.append(host)

    def _limit_wait(self) -> None:
        """Determine for how long the round may wait for hosts that it may not need."""
        left = self._start_left()
        share = (_WITHOUT_LIMIT if left is None else left) * _WAIT_SHARE
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
        made, state = self._round, self._state()
        if made is None or state.outcome is not None:
            return
        self._wait_left = _SHORTEST_WAIT
        waiting = made.waiting_for
        silent = self._pool.unanswered(waiting, self._longest_wait)
        if isinstance(made, FirstRound):
            silent = {**self._pool.unreachable, **silent}
        elif isinstance(made, NextRound) and not made.has_room_without(waiting, _rooms(state)):
            self._limit_wait()
            return
        made.give_up(silent)
        self._finish()

    # Rounds --------------------------------------------------------------------------------

    def _plan_next(self) -> None:
        """Begin the next round that was requested, if there is none."""
        while self._requests and self._round is None and self._state().outcome is None:
            request, state = self._requests.pop(0), self._state()
            if request.restart not in state.restarts or self._plan is None:
                continue
            renewed = {task.name for task in state.tasks.values() if state.has_new_agent(task)}
            lost = {task.name for task in state.tasks.values() if state.why_unusable(task)}
            self._training.interrupt(state.tasks.keys() - renewed - lost)
            self._limit_wait()
            self._round = NextRound(
                *(self.hosts, request, self._plan),
                renewed,
                _rooms(state),
                self._accusers,
            )
            self._finish()

    def _finish(self) -> None:
        """Use the plan once it is made; make another without the hosts that cannot be used."""
        made = self._round
        if made is None or not made.is_finished:
            return
        self._round = None
        if self._state().outcome is not None:
            return
        if isinstance(made, FirstRound):
            self._finish_first(made)
        elif isinstance(made, NextRound):
            self._finish_next(made)
        self._plan_next()

    def _finish_first(self, made: FirstRound) -> None:
        if made.error is not None:
            self._abort(made.error)
        elif made.plan is not None and (tasks := self._use_plan(made.plan)) is not None:
            self._plan = made.plan
            self._emit(events.JobPlanned(at=time.time(), tasks=tasks))
            for host in self._early_returns:
                self._reconnect(host)

    def _finish_next(self, made: NextRound) -> None:
        request = made.request
        if made.unusable:
            for host, cause in made.unusable.items():
                self._emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))
            self._requests.insert(0, request)
        elif made.failure is not None:
            if made.may_pass:
                self._loop.call_at(self._loop.now() + _RETRY_SECONDS, partial(self.add, request))
            self._emit(
                events.PlanFailed(at=time.time(), restart=request.restart, cause=made.failure)
            )
        elif made.plan is not None:
            self._use(made, made.plan)

    def _use(self, made: NextRound, plan: Plan) -> None:
        made.keep_placement()
        for host in made.avoided:
            count = self._state().failures_in_a_row
            cause = Cause(Code.HOST_FAILS_TASKS, host=host, count=count)
            self._emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))
        records = self._use_plan(plan)
        if records is None:
            return
        self._plan = plan
        all_workers = self._state().all_workers
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


def _rooms(state: JobState) -> dict[str, int]:
    """Return how many tasks each host may have that can be used now."""
    here = Counter(task.host for task in state.tasks.values())
    return {
        # Nothing new is sent to a host whose link is lost; it may come back.
        host.name: (host.room or 0) if host.link_lost is None else here[host.name]
        for host in state.hosts.values()
        if host.is_usable
    }
