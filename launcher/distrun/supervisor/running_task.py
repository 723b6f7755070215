"""What is known of one attempt of a task."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from typing import Protocol

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, Progress
from distrun.job.history import Sample, numbers
from distrun.plan import TaskPlan
from distrun.spec.model import Ready
from distrun.supervisor.line_search import LineSearch
from distrun.supervisor.log_tails import LogTails, TailedLog
from distrun.supervisor.running_job import RunningJob

_MOST_VALUES = 100
"""How many keys of a task are kept: those that it reported last."""
_MOST_LOADS = 64
"""How many samples of the processor time are kept."""
_LATENESS = 2.0
"""Seconds by which the time of printed progress may be late: it is that of reading the log."""


class TaskObserver(Protocol):
    """Receives what an attempt does."""

    def on_progress(self, task: RunningTask) -> None:
        """There is progress: :attr:`RunningTask.latest`."""

    def on_step(self, task: RunningTask, step: str | None, *, is_moving: bool) -> None:
        """It has this step now. None: it has only other progress."""

    def on_served(self, task: RunningTask, addresses: set[str]) -> None:
        """It has started servers at these addresses, by its log."""

    def on_ready(self, task: RunningTask) -> None:
        """The tasks that start after it can start."""


class RunningTask:
    """One attempt, from the order to start it until the next one, or until the task is dropped.

    What it reports through DISTRUN_NOTIFY replaces what it prints, key by key. Once it has reported
    a step or an epoch, what it prints does not count.
    """

    def __init__(
        self, plan: TaskPlan, job: RunningJob, tails: LogTails, observer: TaskObserver
    ) -> None:
        self._plan, self.name = plan, plan.name
        self._job, self._tails, self._observer = job, tails, observer
        self._reported: dict[str, str] = {}
        self._printed: dict[str, str] = {}
        self.latest: Progress | None = None
        """All that is known of its progress. Times are by this machine's clock."""
        self.step_at: float | None = None
        """When its step changed last (Unix time)."""
        self._loads: deque[tuple[float, float]] = deque(maxlen=_MOST_LOADS)
        """When it was sampled (Unix time), and the processor seconds that it had used by then."""
        self.attempt = 0
        self._search: LineSearch | None = None
        self._is_awaited = False
        """Whether it runs, and is not ready for the tasks that start after it."""

    def start(self, report: protocol.TaskStarted) -> None:
        self.attempt = report.attempt
        self._is_awaited = self._plan.is_awaited and self._plan.ready is not Ready.OFF
        if self._is_awaited and self._plan.ready is Ready.LINE:
            self._search = LineSearch(
                *(self._job.loop, self._job.hosts.calls, self._job.folder.log_of(self.name)),
                start=report.log_start,
                expression=self._plan.ready_line,
                on_found=self._on_line,
            )
        if not self.reports_steps:
            tail = TailedLog(
                *(self._job.folder, self.name, report.log_start, self._on_printed),
                on_served=lambda addresses: self._observer.on_served(self, addresses),
            )
            self._tails.start(self.name, tail)

    def end(self) -> None:
        """The attempt has exited. The rest of its log may come later."""
        self._is_awaited = False
        if self._search is not None:
            self._search.close()
            self._search = None

    def close(self) -> None:
        """The next attempt begins, or there is none."""
        self.end()
        self._tails.stop(self.name)

    # Readiness -----------------------------------------------------------------------------

    def on_listening(self, ports: Collection[int]) -> None:
        """Note the ports on which it listens: it may be ready now."""
        if self._is_awaited and self._plan.ready is Ready.PORT and self._plan.port in ports:
            self._is_awaited = False
            self._observer.on_ready(self)

    def _on_line(self) -> None:
        self.end()
        self._observer.on_ready(self)

    @property
    def why_not_ready(self) -> Cause | None:
        """A cause if its log has not been searched to its end."""
        count, total = (0, 0) if self._search is None else self._search.progress
        if count >= total:
            return None
        code, expression = Code.LINE_SEARCH_BEHIND, self._plan.ready_line
        return Cause(code, task=self.name, text=expression, count=count, total=total)

    # Progress ------------------------------------------------------------------------------

    @property
    def reports_steps(self) -> bool:
        """Whether it has reported steps or epochs. Then what it prints does not count."""
        return not {"STEP", "EPOCH"}.isdisjoint(self._reported)

    @property
    def is_between(self) -> bool:
        """Whether it saves, or has made the last step of an epoch: what follows prints nothing."""
        values = {} if self.latest is None else self.latest.values
        return values.get("SAVING") == "1" or values.get("STEP", "") == values.get("STEPS", "?")

    def record(self, report: Progress) -> None:
        """Note what it has reported. What it reported before stays valid."""
        had_steps = self.reports_steps
        self._reported = _merged(self._reported, report.values)
        if self.reports_steps and not had_steps:
            self._tails.stop(self.name)
            self._printed = {}
            self._observer.on_step(self, None, is_moving=False)  # its bar is not waited for
        self._observer.on_step(self, report.values.get("STEP"), is_moving=True)
        self._update(report.at)

    def sample(self, report: protocol.UsageSampled) -> Sample:
        """Return what it uses, with the progress that it had reported or printed by then."""
        if report.cpu_seconds is not None:
            self._loads.append((report.at, report.cpu_seconds))
        values = report._asdict()
        del values["task"]
        is_known = self.latest is not None and self.latest.at <= report.at + _LATENESS
        values["progress"] = numbers({**(self._printed if is_known else {}), **report.progress})
        return Sample(**values)

    def load_since(self, at: float) -> float:
        """Return how much of a core it has used since then (Unix time); 0: it was idle, or new."""
        loads = [each for each in self._loads if each[0] >= at]
        passed = loads[-1][0] - loads[0][0] if loads else 0.0
        return (loads[-1][1] - loads[0][1]) / passed if passed > 0 else 0.0

    def _on_printed(self, values: dict[str, str], is_moving: bool) -> None:
        step = f"{values.get('EPOCH')} {values.get('STEP')}"
        self._observer.on_step(self, step, is_moving=is_moving)
        if self._printed != values:
            self._printed = values
            self._update(time.time())

    def _update(self, at: float) -> None:
        values = _merged(self._printed, self._reported)
        before = {} if self.latest is None else self.latest.values
        if "STEP" in values and values["STEP"] != before.get("STEP"):
            self.step_at = at
        self.latest = Progress(self.name, values, at)
        self._observer.on_progress(self)


def _merged(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Return both, with the values that `after` has, and with the last keys if there are many."""
    kept = [(key, value) for key, value in before.items() if key not in after]
    return dict([*kept, *after.items()][-_MOST_VALUES:])
