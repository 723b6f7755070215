"""Shows a line that several tasks of one role print at the same time only once."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from distrun.logs.view import View

_WINDOW = 0.2
"""Seconds that a line waits for the same line of the other tasks."""
_MOST_BYTES = 1 << 15
"""The most bytes that are held back. More are shown as they are: nobody can read so many lines."""


class _Line:
    """A line that waits, and the tasks that have printed it."""

    def __init__(self, number: int, text: bytes, task: str, due: float) -> None:
        self.number = number
        self.text = text
        self.tasks = [task]
        self.due = due


class RepeatFolder:
    """Holds lines back for a moment, and joins those that tasks of one role print alike.

    The lines of each task keep their order. A line that all tasks of the role have printed waits
    no longer, except for the lines before it.
    """

    def __init__(
        self, view: View, tasks: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._view = view
        self._clock = clock
        self._members = Counter(map(_role, tasks))
        self._prefixes = {task: view.prefix(task) for task in tasks}
        self._waiting: deque[_Line] = deque()
        self._alike: dict[tuple[str, bytes], list[_Line]] = {}
        self._last: dict[str, int] = {}
        """By task: the number of its last line."""
        self._number = 0
        self._size = 0

    @property
    def wait(self) -> float | None:
        """Seconds until :meth:`due` returns something; None if nothing waits."""
        return max(0.0, self._waiting[0].due - self._clock()) if self._waiting else None

    def add(self, task: str, lines: bytes) -> Iterator[bytes]:
        """Receive whole lines of a task. Yields what is shown at once."""
        if len(lines) + self._size > _MOST_BYTES:
            yield from self.flush()
            prefix = self._prefixes[task]
            yield prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
            return
        self._size += len(lines)
        now = self._clock()
        for text in lines.split(b"\n")[:-1]:
            self._add(task, text, now)

    def due(self) -> list[bytes]:
        """The lines that have waited long enough."""
        return self._until(self._clock())

    def flush(self) -> list[bytes]:
        return self._until(float("inf"))

    def _add(self, task: str, text: bytes, now: float) -> None:
        role = _role(task)
        alike = self._alike.setdefault((role, text), [])
        # A task's line may not be shown before its previous one.
        first = bisect_right(alike, self._last.get(task, 0), key=attrgetter("number"))
        if first < len(alike):
            line = alike[first]
            line.tasks.append(task)
            self._last[task] = line.number
            if len(line.tasks) == self._members[role]:
                line.due = now
            return
        self._number += 1
        wait = _WINDOW if self._members[role] > 1 else 0.0
        line = _Line(self._number, text, task, now + wait)
        alike.append(line)
        self._waiting.append(line)
        self._last[task] = line.number

    def _until(self, when: float) -> list[bytes]:
        shown = []
        while self._waiting and self._waiting[0].due <= when:
            line = self._waiting.popleft()
            role = _role(line.tasks[0])
            alike = self._alike[role, line.text]
            del alike[0]
            if not alike:
                del self._alike[role, line.text]
            self._size -= (len(line.text) + 1) * len(line.tasks)
            shown.append(self._formatted(line, role))
        return [b"".join(shown)] if shown else []

    def _formatted(self, line: _Line, role: str) -> bytes:
        count = len(line.tasks)
        if count == 1:
            return self._prefixes[line.tasks[0]] + line.text + b"\n"
        return b"%s%s (%d tasks)\n" % (self._view.prefix(f"{role}:*"), line.text, count)


def _role(task: str) -> str:
    return task.partition(":")[0]
