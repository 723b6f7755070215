"""Detects that the tasks of a job make no progress: a sign of life of each is too long ago."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from distrun.agent.loop import Loop

QUIET_SECONDS = 120.0
"""Without `timeouts.stall`, tasks are silent after this time."""
SUSPECT_SECONDS = 20.0
"""The same for a job with a task that serves at another address than TF_CONFIG's."""
_CHECKS = 8
"""How many checks there are in that time, or in `timeouts.stall`. Silence is noticed at most one
check late."""
IDLE_SHARE = 0.01
"""Of a core. A TensorFlow task that waits for others uses 0.002 (measured, version 2.21)."""
SPINNING_SHARE = 0.1
"""Of a core, of a task in an endless loop, which may have to share the core with other programs."""
_UNUSUAL, _LONGER_THAN_EVER = 10.0, 3.0
"""How many usual intervals between steps or lines are a stop, and how many times the longest."""
_PATIENT_SECONDS, _MOST_PATIENT_SECONDS = 300.0, 3600.0
"""At least this long where the tasks may evaluate or save, which prints nothing: at the end of an
epoch, or where not just one of them computes."""
_INTERVALS, _FEWEST_INTERVALS, _FEWEST_OF_LINES = 64, 8, 20
"""How many of the last intervals count, and how many there must be: more before the first step,
where the lines may be those of the start."""
_SAME_TIME = 0.5
"""Seconds; what tasks print and report within them comes at the same time."""


class Stop(NamedTuple):
    """Tasks use the processor, and no task prints or reports anything any more.

    `usual`: the usual seconds between two steps or lines. `busy`: the tasks that are busy while the
    others wait; none: all are.
    """

    usual: float
    busy: tuple[str, ...]


class StallDetector:
    """Compares what tasks do from check to check, and says when they are silent.

    With `timeouts.stall`, a sign of life is a step that a task has not reported before. Until any
    task has reported a step, all output is a sign, too: the tasks may have no steps, or not have
    reached the first. The same is true of tasks whose bars show their steps, unless a bar moves:
    only its steps count then.

    Without it, all output is a sign, and so are reports and the use of the processor. The latter is
    measured only while there is no other sign. It is none if output and reports came at short
    intervals before: then the tasks hang in a loop. A step may take ten times as long as usual, and
    three times as long as ever: epochs end in evaluations and checkpoints.

    Args:
        stall: `timeouts.stall` in seconds; None: it is off.
        list_tasks: returns the tasks whose signs count; none: nothing is known of them now.
        measure: has all hosts report the processor time of their tasks, to :meth:`record_cpu`.
        is_between: returns whether a task saves, or has made the last step of an epoch.
        list_training: returns the tasks that train; none: all do. An evaluator may wait for long.
    """

    def __init__(
        self,
        loop: Loop,
        stall: float | None,
        size_of_log: Callable[[str], int],
        list_tasks: Callable[[], Collection[str]],
        measure: Callable[[], None],
        on_change: Callable[[bool], None],
        is_between: Callable[[], bool] = lambda: False,
        list_training: Callable[[], Collection[str]] = list,
    ) -> None:
        self._now, self._size_of_log, self._list_tasks = loop.now, size_of_log, list_tasks
        self._measure, self._on_change, self._is_between = measure, on_change, is_between
        self._list_training = list_training
        self.counts_steps = stall is not None
        self._seconds = QUIET_SECONDS if stall is None else stall
        self.last = self._measured_at = loop.now()
        self._sizes: dict[str, int] = {}
        self._steps: dict[str, str] = {}
        self._stepping: set[str] = set()
        """The tasks that are to report another step."""
        self._used: dict[str, tuple[float, float]] = {}
        """The processor time that each task had used, and when that was measured."""
        self._shares: dict[str, float] = {}
        """The share of a core that each task has used since the last output or report."""
        self._intervals: deque[float] = deque(maxlen=_INTERVALS)
        self._longest = self._longest_silence = 0.0
        self._first_output: float | None = None
        self.last_output = self._counted = self._checked_at = self.last
        self.are_silent = False
        self.stop_found: Stop | None = None
        """What the silence is, if tasks use the processor."""
        first = None if self.counts_steps else loop.now() + QUIET_SECONDS / _CHECKS
        self._next = loop.call_at(first, self._check)

    @property
    def silent_since(self) -> float:
        """Since when the tasks are silent, by the loop's clock."""
        return self.last if self.stop_found is None else self.last_output

    def start(self) -> None:
        """Start to watch the tasks: they run now."""
        self._steps, self._stepping = {}, set()
        self._sizes = self._read_sizes()
        self._intervals.clear()
        self._longest, self._first_output = 0.0, None
        self._note_sign()
        self._longest_silence = 0.0
        self._next.move(self._now() + self._seconds / _CHECKS)

    def stop(self) -> None:
        self._next.cancel()
        self.are_silent = False

    def limit(self, seconds: float) -> None:
        """Call the tasks silent after this time, unless `timeouts.stall` says when."""
        if not self.counts_steps and seconds != self._seconds:
            self._seconds = seconds
            self._next.move(self._now() + seconds / _CHECKS)

    def record(self, task: str, step: str | None, *, is_moving: bool = True) -> None:
        """Note a task's progress; `step` is None for another. `is_moving`: a step will follow."""
        is_sign = not self.counts_steps
        if is_sign:
            self.note_output()
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

    def note_output(self) -> None:
        """Note that tasks have printed or reported anything."""
        if self.counts_steps:
            return
        now = self._now()
        if self._first_output is None:
            self._first_output = self._counted = now
        elif now - self._counted >= _SAME_TIME:
            self._intervals.append(now - self._counted)
            self._longest = max(self._longest, now - self._counted)
            self._counted = now
        self._note_sign()

    def record_cpu(self, seconds: Mapping[str, float]) -> None:
        """Note the processor time in seconds that the tasks of a host have used."""
        now, is_busy = self._now(), False
        for task, used in seconds.items():
            before, measured_at = self._used.setdefault(task, (used, now))
            passed = now - measured_at
            is_busy |= abs(used - before) > IDLE_SHARE * passed
            if passed >= self._seconds / 2:
                self._used[task] = used, now
                self._shares[task] = abs(used - before) / passed
        if is_busy:
            if self.stop_found is None:
                self._change(are_silent=False)
            self.last = now
        is_long = now - self.last >= max(self._seconds, 2 * self._longest_silence)
        shares = [self._shares.get(task, 1.0) for task in self._sizes]
        if is_long and shares and max(shares) <= IDLE_SHARE:
            self.stop_found = None
            self._change(are_silent=True)

    def find_hang(self, shares: Mapping[str, float]) -> Stop | None:
        """Return how tasks seem to have stopped, earlier than it is told unless somebody asks.

        Its `usual` is 0 if they are idle. `shares`: of a core, since the last output.
        """
        if self.counts_steps or not self._sizes or not shares.keys() >= {*self._sizes}:
            return None
        is_idle = max(shares.values()) <= IDLE_SHARE
        if is_idle and self._now() - self.last_output >= SUSPECT_SECONDS:
            return Stop(0.0, ())
        return self._find_stop(shares, SUSPECT_SECONDS)

    def _find_stop(self, shares: Mapping[str, float], shortest: float) -> Stop | None:
        """Return how tasks have stopped that use the processor; None: they have not."""
        fewest = _FEWEST_INTERVALS if self._steps else _FEWEST_OF_LINES
        if len(self._intervals) < fewest or not shares.keys() >= {*self._sizes}:
            return None
        training = [task for task in self._list_training() if task in self._sizes] or self._sizes
        busy = [task for task in training if shares[task] >= SPINNING_SHARE]
        waits = [task for task in training if shares[task] <= IDLE_SHARE]
        usual = sorted(self._intervals)[len(self._intervals) // 2]
        least = max(shortest, _UNUSUAL * usual, _LONGER_THAN_EVER * self._longest)
        if self._is_between():
            # What comes now takes hardly longer than all the training before.
            passed = self.last_output - (self._first_output or 0.0)
            least = max(least, _PATIENT_SECONDS, min(passed, _MOST_PATIENT_SECONDS))
        elif len(busy) != 1 or not waits or len(waits) + 1 < len(training):
            least = max(least, _PATIENT_SECONDS)
        if self._now() - self.last_output < least:
            return None
        working = busy or [task for task in training if task not in waits]
        return Stop(usual, tuple(working) if waits else ())

    def _check(self) -> None:
        now, sizes = self._now(), self._read_sizes()
        step, has_output = self._seconds / _CHECKS, sizes != self._sizes
        self._sizes = sizes or self._sizes
        is_known = not self.counts_steps and self.last_output > self._checked_at
        self._checked_at = now
        if not sizes or (has_output and not self._stepping and not is_known):
            self._note_sign()
        elif not self.counts_steps and (
            not self._used
            or (now - self.last >= self._seconds and now - self._measured_at >= self._seconds / 2)
        ):
            self._measured_at = now
            self._measure()
        elif not self.counts_steps and not self.are_silent:
            self.stop_found = self._find_stop(self._shares, QUIET_SECONDS)
            if self.stop_found is not None:
                self._change(are_silent=True)
        left = self.last + self._seconds - now
        if self.counts_steps and left > 0:
            step = min(left, step)
        self._next.move(now + step)  # before what follows, which may end the watch
        if self.counts_steps:
            self._change(are_silent=left <= 0)

    def _read_sizes(self) -> dict[str, int]:
        return {task: self._size_of_log(task) for task in self._list_tasks()}

    def _note_sign(self) -> None:
        self._change(are_silent=False)
        self.last = self.last_output = self._now()
        self._used, self._shares, self.stop_found = {}, {}, None

    def _change(self, *, are_silent: bool) -> None:
        if are_silent != self.are_silent:
            if not are_silent:  # it has ended by itself: the next one must be longer to be told
                self._longest_silence = max(self._longest_silence, self._now() - self.last)
            self.are_silent = are_silent
            self._on_change(are_silent)
