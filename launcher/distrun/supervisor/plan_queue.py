"""The queue of restarts that need another plan, because their tasks need other hosts."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.strategies import Role
from distrun.supervisor.replanning import Replanning
from distrun.supervisor.wait_limit import WaitLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distrun.agent.loop import Loop
    from distrun.agent.protocol import Report
    from distrun.lifecycle import JobState, MakePlan
    from distrun.plan import Plan
    from distrun.spec.model import Spec
    from distrun.supervisor.preparation import Preparation
    from distrun.supervisor.training_gap import TrainingGap


_RETRY_SECONDS = 5.0


class PlanQueue:
    """Makes a plan for each request of the lifecycle, one at a time.

    Args:
        preparation: that of the launch, which knows the hosts.
        plan: the present plan.
        training: is interrupted when a further plan is begun.
        state: returns the present state of the job.
        start_left: returns the seconds that are left of `timeouts.start`; None: it is off.
        find_unanswered: returns what hosts have not answered, see :meth:`.HostPool.unanswered`.
        emit: called with the events for the record.
        use_plan: replaces the present plan. Returns the tasks for the record; None if the job was
            aborted instead.
    """

    def __init__(  # noqa: PLR0913 - most have names
        self,
        loop: Loop,
        spec: Spec,
        preparation: Preparation,
        plan: Plan,
        training: TrainingGap,
        *,
        state: Callable[[], JobState],
        start_left: Callable[[], float | None],
        find_unanswered: Callable[[Iterable[str], float], dict[str, Cause]],
        emit: Callable[[events.Event], None],
        use_plan: Callable[[Plan], tuple[events.TaskRecord, ...] | None],
    ) -> None:
        self._loop = loop
        self._spec = spec
        self._preparation = preparation
        self._plan = plan
        self._training = training
        self._state = state
        self._start_left = start_left
        self._find_unanswered = find_unanswered
        self._emit = emit
        self._use_plan = use_plan
        self._accusers: dict[str, set[str]] = {}
        """By each host, those that could not reach it while a plan was made."""
        self._requests: list[MakePlan] = []
        self._replanning: Replanning | None = None
        self._wait_limit: WaitLimit | None = None
        """How long the plan in progress may wait for hosts that others can replace."""
        loop.checks.append(self._check_wait_limit)

    def add(self, request: MakePlan) -> None:
        self._requests.append(request)
        self._plan_next()

    def receive(self, host: str, report: Report) -> None:
        """Handle a report of a host that the plan in progress may wait for."""
        if self._replanning is not None:
            self._replanning.receive(host, report)
            self._finish()

    def advance(self) -> None:
        """Continue the plan in progress: files have been delivered, or refused."""
        if self._replanning is not None:
            self._replanning.advance()
            self._finish()

    def restart(self, host: str) -> None:
        """Begin the plan in progress anew if it has that host, which cannot be used any more."""
        if self._replanning is not None and host in self._replanning.hosts:
            self._requests.insert(0, self._replanning.request)
            self._replanning = None
            self._plan_next()

    @property
    def unanswered(self) -> dict[str, Cause]:
        """What the hosts that the plan in progress waits for have not answered."""
        if self._replanning is None or self._wait_limit is None:
            return {}
        return self._find_unanswered(self._replanning.waiting_for, self._wait_limit.seconds)

    def _check_wait_limit(self) -> None:
        """Leave out new hosts that have not answered for too long, if others can replace them."""
        made, limit = self._replanning, self._wait_limit
        if made is None or limit is None or self._state().outcome is not None:
            return
        waiting = made.waiting_for
        limit.update(is_waiting=made.waits_for_new_hosts)
        if limit.is_over:
            rooms = _rooms_of_hosts(self._state())
            if made.has_room_without(waiting, rooms):
                made.unusable.update(self.unanswered)
                self._finish()
            else:
                self._wait_limit = self._new_wait_limit()

    def _new_wait_limit(self) -> WaitLimit:
        return WaitLimit(self._loop, self._start_left(), self._check_wait_limit)

    def _plan_next(self) -> None:
        """Start to make the next plan that was requested, if none is being made."""
        while self._requests and self._state().outcome is None and self._replanning is None:
            request = self._requests.pop(0)
            if request.restart not in self._state().restarts:
                continue
            state = self._state()
            renewed = {task.name for task in state.tasks.values() if state.has_new_agent(task)}
            lost = {task.name for task in state.tasks.values() if state.why_unusable(task)}
            self._training.interrupt(state.tasks.keys() - renewed - lost)
            self._wait_limit = self._new_wait_limit()
            self._replanning = Replanning(
                *(self._spec, self._preparation, request, self._plan),
                renewed,
                _rooms_of_hosts(state),
                self._accusers,
            )
            self._finish()

    def _finish(self) -> None:
        """Use the plan once it is made; make another without the hosts that cannot be used."""
        made = self._replanning
        if made is None or not made.is_finished:
            return
        self._replanning = None
        if self._state().outcome is not None:
            return
        if made.unusable:
            for host, cause in made.unusable.items():
                self._emit(events.HostLeftOut(at=time.time(), host=host, cause=cause))
            self._requests.insert(0, made.request)
        elif made.plan is None:
            cause = made.failure or Cause(Code.NO_ROOM, tasks=made.request.tasks)
            restart = made.request.restart
            if made.may_pass:
                at = self._loop.now() + _RETRY_SECONDS
                self._loop.call_at(at, partial(self.add, made.request))
            self._emit(events.PlanFailed(at=time.time(), restart=restart, cause=cause))
        else:
            self._use(made, made.plan)
        self._plan_next()

    def _use(self, made: Replanning, plan: Plan) -> None:
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


def _rooms_of_hosts(state: JobState) -> dict[str, int]:
    """Return how many tasks each host may have that can be used now."""
    here = Counter(task.host for task in state.tasks.values())
    return {
        # Nothing new is sent to a host whose link is lost; it may come back.
        host.name: (host.room or 0) if host.link_lost is None else here[host.name]
        for host in state.hosts.values()
        if host.is_usable
    }
