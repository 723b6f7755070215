"""Samples running tasks from time to time, and reports once what costs much of their time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from distrun.job.events import Event, FirstStep, JobAdvised, TaskEnded
from distrun.job.stacks import Stacks
from distrun.lifecycle import JobPhase, JobState
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.running_tasks import RunningTasks
from distrun.words.progress import number

if TYPE_CHECKING:
    from distrun.advice.profile import TaskProfile

_FIRST, _BETWEEN, _PAUSE = 45.0, 30.0, 1200.0
"""Seconds until the first look, from one to the next, and after some of them."""
_LOOKS = 3
_SECONDS = 2
"""How long each sample takes: py-spy then uses a fiftieth of a core."""
_MOST_TASKS = 16
"""How many tasks' stacks are sampled: those of the chief and of the first workers."""
_FEWEST_STEPS = 8


class Advisor:
    """Reports by an event what each of three samples, a minute in all, has shown.

    It samples stacks if py-spy is installed and all tasks are here, otherwise CPU times and steps.
    """

    def __init__(self, job: RunningJob, running: RunningTasks) -> None:
        self._job, self._running = job, running
        self._next = job.loop.call_at(None, self._look)
        self._looks: list[list[TaskProfile]] = []
        self._steps: dict[str, tuple[float, float]] = {}
        """When each task had taken how many steps, at the first look."""
        self._told: set[tuple[str, str]] = set()

    def on_event(self, _before: JobState, event: Event, state: JobState) -> None:
        """Start again when tasks take their first steps, or end."""
        if state.outcome is not None or isinstance(event, (FirstStep, TaskEnded)):
            self._looks = []
            self._next.move(self._job.loop.now() + _FIRST)
        if state.outcome is not None:
            self._next.cancel()

    def _look(self) -> None:
        from distrun.job import py_spy

        state = self._job.state
        self._next.move(self._job.loop.now() + _FIRST)  # if it is no time to look
        is_saving = any(state.tasks[each].is_saving for each in state.training)
        if state.phase is not JobPhase.RUNNING or is_saving:
            return
        if not self._looks:
            self._steps = self._count_steps()
        names = [task for task in state.training if task in self._steps][:_MOST_TASKS]
        if not names:
            return
        is_here = not any(map(self._job.has_own_logs, {state.tasks[name].host for name in names}))
        program = (py_spy.find() if is_here else None) or ""
        self._next.cancel()
        then = partial(self._on_look, names, self._looks)
        self._running.stacks.ask(names, program, then, recorded=_SECONDS)

    def _count_steps(self) -> dict[str, tuple[float, float]]:
        found = ((each, number(each.values.get("STEP", ""))) for each in self._running.progress)
        return {each.task: (each.at, step) for each, step in found if step is not None}

    def _on_look(self, names: list[str], looks: list[list[TaskProfile]], found: Stacks) -> None:
        from distrun.advice.profile import profile

        if looks is not self._looks:
            return  # tasks have ended or begun meanwhile
        state = self._job.state
        each_one = (profile(p, state.training, state.gpu_tasks) for p in found.processes)
        profiles = [each for each in each_one if each is not None]
        is_whole = {each.task for each in profiles} == set(names)
        if state.phase is not JobPhase.RUNNING or not is_whole:
            self._looks = []
            self._next.move(self._job.loop.now() + _PAUSE)
            return
        self._looks.append(profiles)
        if len(self._looks) == _LOOKS:
            self._report()
            self._looks = []
        self._next.move(self._job.loop.now() + (_BETWEEN if self._looks else _PAUSE))

    def _rates(self) -> dict[str, float]:
        """Return how many steps a second each task has taken since the first look."""
        rates = {}
        for task, (at, step) in self._count_steps().items():
            began, before = self._steps.get(task, (at, step))
            if at > began and step - before >= _FEWEST_STEPS:
                rates[task] = (step - before) / (at - began)
        return rates

    def _report(self) -> None:
        from distrun.advice.rules import advise_by_profiles

        state = self._job.state
        members = {task.name for task in state.synchronous_tasks}
        hosts = {task.name: task.host for task in state.tasks.values()}
        advice = advise_by_profiles(self._looks, members, hosts, self._rates())
        if advice is not None and (advice.symptom.value, advice.task) not in self._told:
            self._told.add((advice.symptom.value, advice.task))
            self._job.emit(JobAdvised(at=time.time(), finding=advice))
