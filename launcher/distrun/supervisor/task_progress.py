"""The progress of each task's present attempt: what it reports, prints and uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distrun.agent.protocol import Progress
from distrun.job.history import HistoryLog, Sample, numbers
from distrun.supervisor.log_progress import LogProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distrun.agent.loop import Loop
    from distrun.agent.protocol import UsageSampled
    from distrun.job.folder import JobFolder

_MOST_VALUES = 100
"""How many keys of a task are kept: those that it reported last."""
_LATENESS = 2.0
"""Seconds by which the time of printed progress may be late: it is that of reading the log."""


class TaskProgress:
    """Joins what tasks report through DISTRUN_NOTIFY with what Keras and tqdm print in them.

    What a task reports replaces what it prints, key by key. Once it has reported a step or an
    epoch, what it prints does not count.

    Args:
        folder: the job's.
        on_progress: called with a task's progress.
        on_step: called with a task, its step (None: it has only other progress), and whether
            another step is to follow.
    """

    def __init__(
        self,
        loop: Loop,
        folder: JobFolder,
        on_progress: Callable[[Progress], None],
        on_step: Callable[[str, str | None, bool], None],
    ) -> None:
        self._on_progress, self._on_step = on_progress, on_step
        self._logs = LogProgress(loop, folder, self._on_printed)
        self._history = HistoryLog(folder)
        self._reported: dict[str, dict[str, str]] = {}
        self._printed: dict[str, dict[str, str]] = {}
        self.latest: dict[str, Progress] = {}
        """By task, all that is known. Times are by this machine's clock."""
        self.step_at: dict[str, float] = {}
        """When each task's step changed last (Unix time)."""

    def start(self, task: str, log_start: int) -> None:
        """Read what an attempt prints: it runs now, and its output begins there in its log."""
        if not self.reports_steps(task):
            self._logs.start(task, log_start)

    def forget(self, task: str) -> None:
        """Forget an attempt: the next one is about to start."""
        self._logs.stop(task)
        self.step_at.pop(task, None)
        for known in (self._reported, self._printed, self.latest):
            known.pop(task, None)

    def read_rest(self, tasks: Iterable[str] | None = None) -> None:
        """Read what tasks have printed until now. Default: all tasks."""
        self._logs.read_rest(tasks)

    def close(self) -> None:
        """Stop reading what tasks print."""
        self._logs.close()

    def record(self, report: Progress) -> None:
        """Note what a task has reported. What it reported before stays valid."""
        task, had_steps = report.task, self.reports_steps(report.task)
        self._reported[task] = _merged(self._reported.get(task, {}), report.values)
        if self.reports_steps(task) and not had_steps:
            self._logs.stop(task)
            self._printed.pop(task, None)
            self._on_step(task, None, False)  # its bar is not waited for any more
        self._on_step(task, report.values.get("STEP"), True)
        self._update(task, report.at)

    def record_usage(self, report: UsageSampled) -> None:
        """Keep what a task uses, with the progress that it had reported or printed by then."""
        values = report._asdict()
        task = values.pop("task")
        known = self.latest.get(task)
        is_known = known is not None and known.at <= report.at + _LATENESS
        printed = self._printed.get(task, {}) if is_known else {}
        values["progress"] = numbers({**printed, **report.progress})
        self._history.append(task, Sample(**values))

    def reports_steps(self, task: str) -> bool:
        """Whether a task has reported steps or epochs. Then what it prints does not count."""
        return not {"STEP", "EPOCH"}.isdisjoint(self._reported.get(task, ()))

    def _on_printed(self, task: str, values: dict[str, str], is_moving: bool) -> None:
        self._on_step(task, f"{values.get('EPOCH')} {values.get('STEP')}", is_moving)
        if self._printed.get(task) != values:
            self._printed[task] = values
            self._update(task, time.time())

    def _update(self, task: str, at: float) -> None:
        values = _merged(self._printed.get(task, {}), self._reported.get(task, {}))
        before = self.latest.get(task)
        if "STEP" in values and (before is None or values["STEP"] != before.values.get("STEP")):
            self.step_at[task] = at
        self.latest[task] = Progress(task, values, at)
        self._on_progress(self.latest[task])


def _merged(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Return both, with the values that `after` has, and with the last keys if there are many."""
    kept = [(key, value) for key, value in before.items() if key not in after]
    return dict([*kept, *after.items()][-_MOST_VALUES:])
