"""When the tasks of a job last showed a sign of life."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distrun.agent.loop import Loop

QUIET_SECONDS = 120.0
"""Without `timeouts.stall`, tasks are silent after this time."""
SUSPECT_SECONDS = 20.0
"""The same for a job with a task that serves at another address than TF_CONFIG's."""
_CHECKS = 8
"""How many checks there are in that time, or in `timeouts.stall`. Silence is noticed at most two
checks late."""
_IDLE_SHARE = 0.01
"""Of a core. A TensorFlow task that waits for others uses 0.002 (measured, version 2.21)."""


class SignsOfLife:
    """Compares what tasks do from check to check, and says when they are silent.

    With `timeouts.stall`, a sign of life is a step that a task has not reported before. Until any
    task has reported a step, all output is a sign, too: the tasks may have no steps, or not have
    reached the first. The same is true of tasks whose bars show their steps, unless a bar moves:
    only its steps count then.

    Without it, all output is a sign, and so are reports and the use of the processor. The latter is
    measured only while there is no other sign.

    Args:
        stall: `timeouts.stall` in seconds; None: it is off.
        size_of_log: returns the size of a task's log in bytes.
        list_tasks: returns the tasks whose signs count; none: nothing is known of them now.
        measure: has all hosts report the processor time of their tasks, to :meth:`record_cpu`.
        on_change: called with whether the tasks are silent now.
    """

    def __init__(
        self,
        loop: Loop,
        stall: float | None,
        size_of_log: Callable[[str], int],
        list_tasks: Callable[[], Collection[str]],
        measure: Callable[[], None],
        on_change: Callable[[bool], None],
    ) -> None:
        self._now, self._size_of_log, self._list_tasks = loop.now, size_of_log, list_tasks
        self._measure, self._on_change = measure, on_change
        self.counts_steps = stall is not None
        self._seconds = QUIET_SECONDS if stall is None else stall
        self.last = self._measured_at = loop.now()
        """The time of the last sign, by the loop's clock."""
        self._sizes: dict[str, int] = {}
        self._steps: dict[str, str] = {}
        self._stepping: set[str] = set()
        """The tasks that are to report another step."""
        self._used: dict[str, tuple[float, float]] = {}
        """The processor time that each task had used, and when that was measured."""
        self._idle: set[str] = set()
        """The tasks that have used none since the last sign of any task."""
        self.are_silent = False
        first = None if self.counts_steps else loop.now() + QUIET_SECONDS / _CHECKS
        self._next = loop.call_at(first, self._check)

    def start(self) -> None:
        """Watch the tasks anew: they run now."""
        self._steps, self._stepping = {}, set()
        self._sizes = self._read_sizes()
        self._note_sign()
        self._next.move(self._now() + self._seconds / _CHECKS)

    def stop(self) -> None:
        """Watch the tasks no more, until they are started again."""
        self._next.cancel()
        self.are_silent = False

    def limit(self, seconds: float) -> None:
        """Call the tasks silent after this time, unless `timeouts.stall` says when."""
        if not self.counts_steps and seconds != self._seconds:
            self._seconds = seconds
            self._next.move(self._now() + seconds / _CHECKS)

    def record(self, task: str, step: str | None, *, is_moving: bool = True) -> None:
        """Note the progress of a task.

        Args:
            task: its name.
            step: None if it has reported other progress.
            is_moving: whether another step is to follow.
        """
        is_sign = not self.counts_steps
        if step is not None and self._steps.get(task) != step:
            self._steps[task] = step
            is_sign = True
        if not is_moving and task in self._stepping:
            self._stepping.remove(task)
            is_sign = True
        elif step is not None and is_moving and self.counts_steps:
            self._stepping.add(task)
        if is_sign:
            self._note_sign()

    def end(self, task: str) -> None:
        """Forget the steps of a task that has exited: no other step is to follow."""
        self._steps.pop(task, None)
        self._stepping.discard(task)
        self._note_sign()

    def record_cpu(self, seconds: Mapping[str, float]) -> None:
        """Note the processor time in seconds that the tasks of a host have used."""
        now = self._now()
        for task, used in seconds.items():
            before, measured_at = self._used.get(task, (used, now))
            passed = now - measured_at
            if abs(used - before) > _IDLE_SHARE * passed:
                self._note_sign()
            elif passed >= self._seconds / 2:
                self._idle.add(task)
            if passed == 0 or passed >= self._seconds / 2:
                self._used[task] = used, now
        is_long = now - self.last >= self._seconds
        if is_long and self._sizes and self._idle.issuperset(self._sizes):
            self._change(are_silent=True)

    def _check(self) -> None:
        now, sizes = self._now(), self._read_sizes()
        step, has_output = self._seconds / _CHECKS, sizes != self._sizes
        self._sizes = sizes or self._sizes
        if not sizes or (has_output and not self._stepping):
            self._note_sign()
        elif not self.counts_steps and (
            not self._used or now - self._measured_at >= self._seconds - step
        ):
            self._measured_at = now
            self._measure()
        left = self.last + self._seconds - now
        if self.counts_steps:
            self._change(are_silent=left <= 0)
            step = min(left, step) if left > 0 else step
        self._next.move(now + step)

    def _read_sizes(self) -> dict[str, int]:
        return {task: self._size_of_log(task) for task in self._list_tasks()}

    def _note_sign(self) -> None:
        self.last = self._now()
        self._used, self._idle = {}, set()
        self._change(are_silent=False)

    def _change(self, *, are_silent: bool) -> None:
        if are_silent != self.are_silent:
            self.are_silent = are_silent
            self._on_change(are_silent)
