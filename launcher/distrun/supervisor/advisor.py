"""Samples running tasks from time to time, and reports once what costs much of their time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from distrun.job import py_spy
from distrun.job.events import Event, FirstStep, JobAdvised, TaskEnded, TaskStarted
from distrun.job.stacks import Stacks
from distrun.job.steps import STEP, Report, numbers, steps_a_second, steps_over_time
from distrun.lifecycle import JobPhase, JobState
from distrun.strategies import Role
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.running_tasks import RunningTasks

if TYPE_CHECKING:
    from distrun.advice.profile import TaskProfile

_FIRST, _BETWEEN, _PAUSE, _PAUSE_WITH_ADVICE = 30.0, 12.0, 1200.0, 300.0
"""Seconds until the first look, from that to the second, which is half of the time to the third,
and after some of them. So work that comes again and again is not seen each time."""
_UNSEEN = 75.0
"""Seconds until the first look at tasks whose steps cannot be read, and until another one if a look
has not shown all of them at work."""
_BETWEEN_RATES, _SLOWER = 60.0, 0.7
"""Seconds, and of its steps a second until then: a task that takes fewer is looked at at once."""
_LOOKS = 3
_SECONDS = 2
"""How long each sample takes: py-spy then uses a fiftieth of a core."""
_MOST_TASKS = 16
"""How many tasks' stacks are sampled: those of the chief and of the first workers."""


class Advisor:
    """Reports by an event what each of three samples, a minute in all, has shown.

    Another event withdraws that when later none of three samples shows anything.
    It samples stacks if py-spy is installed and all tasks are here, otherwise CPU times and steps.
    """

    def __init__(self, job: RunningJob, running: RunningTasks) -> None:
        self._job, self._running = job, running
        self._next = job.loop.call_at(None, self._look)
        self._quiet_until = 0.0
        self._looks: list[list[TaskProfile]] = []
        self._reports: dict[str, list[Report]] = {}
        """The steps that each task had reported at the first look, the end of each, and since."""
        self._told: set[tuple[str, str]] = set()

    def on_event(self, _before: JobState, event: Event, state: JobState) -> None:
        """Start again when tasks start, take their first steps, or end."""
        if state.outcome is not None or isinstance(event, (TaskStarted, FirstStep, TaskEnded)):
            self._looks = []
            self._told.clear()  # what was said before tasks began is not shown any more
            self._rest(_UNSEEN if isinstance(event, TaskStarted) else _FIRST)
        if state.outcome is not None:
            self._next.cancel()

    def _look(self) -> None:
        state, now = self._job.state, self._job.loop.now()
        self._next.move(now + _BETWEEN_RATES)  # if it is no time to look
        if now < self._quiet_until and not self._is_slower():
            return
        is_saving = any(state.tasks[each].is_saving for each in state.training)
        if state.phase is not JobPhase.RUNNING or is_saving:
            return
        if not self._looks:
            self._reports = {}
            self._note_steps()
        known = {each.task for each in self._running.progress}  # Keras may print only epochs
        reporting = [task for task in state.training if task in known]
        names = (self._members or reporting or [*state.training])[:_MOST_TASKS]
        names += [each for each in self._servers if each not in names]
        is_here = not any(map(self._job.has_own_logs, {state.tasks[name].host for name in names}))
        program = (py_spy.find() if is_here else None) or ""
        self._next.cancel()
        then = partial(self._on_look, names, self._looks)
        self._running.stacks.ask(names, program, then, recorded=_SECONDS)

    @property
    def _members(self) -> list[str]:
        """The tasks that take each step together: often, only one of them reports its steps."""
        return [task.name for task in self._job.state.synchronous_tasks][:_MOST_TASKS]

    @property
    def _servers(self) -> list[str]:
        tasks = self._job.state.tasks.values()
        return [task.name for task in tasks if task.role is Role.PS][:_MOST_TASKS]

    def _is_slower(self) -> bool:
        """Whether a task took fewer steps in the last minute than before."""
        self._note_steps()
        each_one = map(steps_over_time, self._reports.values())
        rates = [(steps_a_second(each[:-1]), steps_a_second(each[-2:])) for each in each_one]
        return any(0 < now < _SLOWER * before for before, now in rates)

    def _note_steps(self) -> None:
        for each in self._running.progress:
            if STEP in (values := numbers(each.values)):
                self._reports.setdefault(each.task, []).append((each.at, values))

    def _on_look(self, names: list[str], looks: list[list[TaskProfile]], found: Stacks) -> None:
        from distrun.advice.profile import profile

        if looks is not self._looks:
            return  # tasks have ended or begun meanwhile
        state = self._job.state
        each_one = (profile(p, state.training, state.gpu_tasks) for p in found.processes)
        profiles = [each for each in each_one if each is not None]
        is_whole = {each.task for each in profiles} == set(names)
        works = any({"step", "busy"} & {*each.shares} for each in profiles)
        # Without reports, they may still be starting.
        has_begun = works or self._running.progress
        if state.phase is not JobPhase.RUNNING or not (is_whole and has_begun):
            self._looks = []
            self._rest(_UNSEEN)
            return
        self._looks.append(profiles)
        self._note_steps()
        self._rest(_BETWEEN * len(self._looks))
        if len(self._looks) == _LOOKS:
            self._report()
            self._looks = []
            self._rest(_PAUSE_WITH_ADVICE if self._told else _PAUSE)

    def _rest(self, seconds: float) -> None:
        self._quiet_until = self._job.loop.now() + seconds
        self._next.move(self._job.loop.now() + min(seconds, _BETWEEN_RATES))

    def _report(self) -> None:
        from distrun.advice.rules import advise_by_profiles

        state = self._job.state
        hosts = {task.name: task.host for task in state.tasks.values()}
        each_one = {n: steps_a_second(steps_over_time(r)) for n, r in self._reports.items()}
        rates = {name: rate for name, rate in each_one.items() if rate}
        then = partial(advise_by_profiles, members=self._members, hosts=hosts, rates=rates)
        then = partial(then, servers=self._servers)
        advice = then(self._looks)
        if advice is not None and (advice.symptom.value, advice.task) not in self._told:
            self._told.add((advice.symptom.value, advice.task))
            self._job.emit(JobAdvised(at=time.time(), finding=advice))
        elif self._told and not any(then([look]) for look in self._looks):
            self._told.clear()
            self._job.emit(JobAdvised(at=time.time(), finding=None))
