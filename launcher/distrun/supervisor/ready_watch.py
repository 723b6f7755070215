"""Finds out when tasks are ready for those that start after them."""

from __future__ import annotations

import contextlib
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


def find_listening() -> set[int]:
    """The TCP ports that have a listener on this machine."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, "rb") as file:
            rows = (line.split() for line in file.readlines()[1:])
            ports |= {int(row[1].rsplit(b":", 1)[1], 16) for row in rows if row[3] == b"0A"}
    return ports


class _Attempt(Frozen):
    number: int
    marker: bytes
    """The beginning of the line in its log that precedes its output; empty for the first one."""


class ReadyWatch:
    """Watches the tasks of roles that others start after, from their start until they are ready.

    Args:
        tasks: the job's.
        log_of: returns the path of a task's log.
        find_listening: returns which of some ports have a listener on this machine.
        local_hosts: the hosts that are this machine. An agent reports the listeners of another.
        clock: in seconds.
    """

    def __init__(
        self,
        tasks: Iterable[TaskPlan],
        log_of: Callable[[str], Path],
        find_listening: Callable[[], Collection[int]],
        local_hosts: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        tasks = list(tasks)
        before = {role for task in tasks for role in task.after}
        self._tasks = {
            task.name: task for task in tasks if task.role in before and task.ready is not Ready.OFF
        }
        self._log_of, self._find_listening, self._clock = log_of, find_listening, clock
        self._local_hosts = local_hosts
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
        """Return the tasks that have become ready, and their attempts."""
        listening: Collection[int] = ()
        watched = [self._tasks[name] for name in self._attempts]
        local = [t for t in watched if t.ready is Ready.PORT and t.host in self._local_hosts]
        if local:
            listening = self._find_listening()
        found = [task.name for task in local if task.port in listening]
        found += [t.name for t in watched if t.ready is Ready.LINE and self._has_printed(t)]
        ready = self._pop(found)
        self.next_due = self._clock() + _INTERVAL if self._attempts else None
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
