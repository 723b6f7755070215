"""Starts of tasks that wait until their hosts have executed earlier ones."""

from __future__ import annotations

import time
from collections import OrderedDict

from distrun import lifecycle
from distrun.job import events
from distrun.supervisor.running_job import RunningJob
from distrun.supervisor.running_tasks import RunningTasks

MOST_UNANSWERED = 8
"""How many starts a host may have that it has not answered. More would start no task sooner, and
an agent executes them before an order to stop that follows."""


class StartQueue:
    """Sends each host a few starts at a time, so that an order to stop precedes all others."""

    def __init__(self, job: RunningJob, running: RunningTasks) -> None:
        self._job, self._running = job, running
        self._waiting: dict[str, OrderedDict[str, lifecycle.StartAttempt]] = {}
        self._unanswered: dict[str, set[str]] = {}
        self._canceled: list[str] = []

    def start(self, action: lifecycle.StartAttempt) -> None:
        task = self._job.tasks[action.task]
        self._running.expect(task)
        self._waiting.setdefault(task.host, OrderedDict())[task.name] = action
        self._fill(task.host)

    def stop(self, action: lifecycle.StopTask) -> None:
        """Stop a task, or cancel its start if that was not sent."""
        host = self._job.state.tasks[action.task].host
        waiting = self._waiting.get(host)
        if waiting and waiting.pop(action.task, None) is not None:
            if not self._canceled:
                self._job.call_after(self._report_canceled)
            self._canceled.append(action.task)
        else:
            self._job.hosts.order(host, action)

    def on_answer(self, host: str, task: str) -> None:
        """Send further starts: the host has executed that one, or could not."""
        self._unanswered.get(host, set()).discard(task)
        self._fill(host)

    def _report_canceled(self) -> None:
        """Record together which starts an event has canceled."""
        canceled, self._canceled = tuple(self._canceled), []
        self._job.emit(events.StartsCanceled(at=time.time(), tasks=canceled))

    def remove_host(self, host: str) -> None:
        self._waiting.pop(host, None)
        self._unanswered.pop(host, None)

    def _fill(self, host: str) -> None:
        waiting = self._waiting.get(host)
        unanswered = self._unanswered.setdefault(host, set())
        while waiting and len(unanswered) < MOST_UNANSWERED and self._job.known is not None:
            name, action = waiting.popitem(last=False)
            unanswered.add(name)
            words = ""
            if action.cause is not None:
                from distrun.words.causes import restart_reason  # slow; no first attempt needs it

                words = restart_reason(action.cause)
            task, job_id = self._job.tasks[name], self._job.folder.job_id
            order = self._job.known.start_order(task, job_id, action.attempt, words)
            self._job.hosts.order(host, order)
