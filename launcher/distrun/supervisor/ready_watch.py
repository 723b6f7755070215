"""Finds out when tasks are ready for those that start after them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distrun.frozen import Frozen
from distrun.spec.model import Ready

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from distrun.plan import TaskPlan

_INTERVAL = 0.1
_MOST_BYTES = 1 << 20
"""Longer lines are searched in parts."""


class _Attempt(Frozen):
    number: int
    marker: bytes
    """The beginning of the line in its log that precedes its output; empty for the first one."""


class ReadyWatch:
    """Watches the tasks that others start after, from their start until they are ready.

    Args:
        tasks: the job's.
        log_of: returns the path of a task's log.
        clock: in seconds.
    """

    def __init__(
        self,
        tasks: Iterable[TaskPlan],
        log_of: Callable[[str], Path],
        clock: Callable[[], float],
    ) -> None:
        self._tasks = {
            task.name: task for task in tasks if task.is_awaited and task.ready is not Ready.OFF
        }
        self._log_of, self._clock = log_of, clock
        self._attempts: dict[str, _Attempt] = {}
        """The attempts that run and are not ready."""
        self._offsets: dict[str, int] = {}
        """How much of each log has been searched."""
        self.next_due: float | None = None
        """When to call :meth:`check`."""

    def start(self, name: str, attempt: int) -> None:
        """Watch an attempt: it runs now."""
        if name in self._tasks:
            marker = f"--- attempt {attempt}, ".encode() if attempt else b""
            self._attempts[name] = _Attempt(attempt, marker)
            if self._tasks[name].ready is Ready.LINE:
                self.next_due = self._clock()

    def forget(self, name: str) -> None:
        """Stop watching a task: its attempt has ended."""
        self._attempts.pop(name, None)

    def on_listening(self, name: str, ports: Collection[int]) -> list[tuple[str, int]]:
        """Return the task and its attempt if it is ready, now that it listens on these ports."""
        task = self._tasks.get(name)
        if task is None or task.ready is not Ready.PORT or task.port not in ports:
            return []
        return self._pop([name])

    def check(self) -> list[tuple[str, int]]:
        """Return the tasks that have printed their line, and their attempts."""
        watched = [self._tasks[name] for name in self._attempts]
        printing = [task for task in watched if task.ready is Ready.LINE]
        ready = self._pop([task.name for task in printing if self._has_printed(task)])
        self.next_due = self._clock() + _INTERVAL if len(ready) < len(printing) else None
        return ready

    def _pop(self, names: Iterable[str]) -> list[tuple[str, int]]:
        popped = ((name, self._attempts.pop(name, None)) for name in names)
        return [(name, attempt.number) for name, attempt in popped if attempt is not None]

    def _has_printed(self, task: TaskPlan) -> bool:
        """Whether the attempt has printed the line. A line is searched once it is complete."""
        attempt, offset = self._attempts[task.name], self._offsets.get(task.name, 0)
        try:
            with self._log_of(task.name).open("rb") as log:
                log.seek(offset)
                block = log.read(_MOST_BYTES)
        except OSError:
            return False
        end = block.rfind(b"\n") + 1 or (len(block) if len(block) == _MOST_BYTES else 0)
        lines = block[:end].splitlines()
        self._offsets[task.name] = offset + end
        if attempt.marker:
            starts = [n for n, line in enumerate(lines) if line.startswith(attempt.marker)]
            if not starts:
                return False
            lines = lines[starts[-1] + 1 :]
            self._attempts[task.name] = _Attempt(attempt.number, b"")
        return any(re.search(task.ready_line, line.decode(errors="replace")) for line in lines)
