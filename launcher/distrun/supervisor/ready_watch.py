"""Finds out when tasks are ready for those that start after them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from functools import partial
from selectors import EVENT_READ
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from distrun.agent.protocol import Cause, Code
from distrun.frozen import Frozen
from distrun.regular_file import open_regular_file
from distrun.spec.model import Ready
from distrun.supervisor import line_search
from distrun.supervisor.hosts.local import isolated_python

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path
    from selectors import BaseSelector

    from distrun.plan import TaskPlan

_RETRY_SECONDS = 0.5
"""After a search could not be started or has died. A copy of a log appears with its first part."""


class _Attempt(Frozen):
    number: int
    log_start: int
    """Where its output begins in its log, in bytes."""


class _Search(NamedTuple):
    process: subprocess.Popen[bytes]
    log: BinaryIO
    """The process shares its offset."""
    answer: int
    """A pipe, on which a byte arrives when the line was printed."""


class ReadyWatch:
    """Watches the tasks that others start after, from their start until they are ready.

    Args:
        selector: calls the data of what is registered when it is readable.
        tasks: the job's.
        log_of: returns the path of a task's log.
        clock: in seconds.
    """

    def __init__(
        self,
        selector: BaseSelector,
        tasks: Iterable[TaskPlan],
        log_of: Callable[[str], Path],
        clock: Callable[[], float],
    ) -> None:
        self._selector, self._log_of, self._clock = selector, log_of, clock
        self._tasks: dict[str, TaskPlan] = {}
        self._attempts: dict[str, _Attempt] = {}
        """The attempts that run and are not ready."""
        self._searches: dict[str, _Search] = {}
        self._found: list[str] = []
        """The tasks that have printed their line since the last check."""
        self.next_due: float | None = None
        """When to call :meth:`check`."""
        self.use_plan(tasks)

    def use_plan(self, tasks: Iterable[TaskPlan]) -> None:
        """Watch these tasks from now on. Those that others start after are the same."""
        self._tasks = {
            task.name: task for task in tasks if task.is_awaited and task.ready is not Ready.OFF
        }
        for dropped in self._attempts.keys() - self._tasks.keys():
            self.forget(dropped)

    def start(self, name: str, attempt: int, log_start: int) -> None:
        """Watch an attempt: it runs now, and its output begins at this byte of its log."""
        self.forget(name)  # its host may have been lost before it could report an exit
        if name in self._tasks:
            self._attempts[name] = _Attempt(attempt, log_start)
            if self._tasks[name].ready is Ready.LINE:
                self.next_due = self._clock()

    def forget(self, name: str) -> None:
        """Stop watching a task: its attempt has ended."""
        self._attempts.pop(name, None)
        self._end_search(name)
        if name in self._found:
            self._found.remove(name)

    def on_listening(self, name: str, ports: Collection[int]) -> list[tuple[str, int]]:
        """Return the task and its attempt if it is ready, now that it listens on these ports."""
        task = self._tasks.get(name)
        if task is None or task.ready is not Ready.PORT or task.port not in ports:
            return []
        return self._pop([name])

    def check(self) -> list[tuple[str, int]]:
        """Return the tasks that have printed their line, and their attempts."""
        self.next_due = None
        ready, self._found = self._pop(self._found), []
        for name in self._attempts:
            if self._tasks[name].ready is Ready.LINE and name not in self._searches:
                self._search(name)
        return ready

    @property
    def pids(self) -> set[int]:
        """The processes that search logs."""
        return {search.process.pid for search in self._searches.values()}

    def behind(self) -> tuple[Cause, ...]:
        """Return a cause for each log that has not been searched to its end."""
        causes = []
        for name, search in self._searches.items():
            log, expression = search.log.fileno(), self._tasks[name].ready_line
            count, total = os.lseek(log, 0, os.SEEK_CUR), os.fstat(log).st_size
            if count < total:
                code = Code.LINE_SEARCH_BEHIND
                causes.append(Cause(code, task=name, text=expression, count=count, total=total))
        return tuple(causes)

    def _pop(self, names: Iterable[str]) -> list[tuple[str, int]]:
        popped = ((name, self._attempts.pop(name, None)) for name in names)
        return [(name, attempt.number) for name, attempt in popped if attempt is not None]

    def _search(self, name: str) -> None:
        """Start a process that answers when the attempt has printed its line."""
        expression = line_search.escaped(self._tasks[name].ready_line)
        args = (str(os.getpid()), str(self._attempts[name].log_start), expression)
        with contextlib.ExitStack() as opened:
            try:
                log = opened.enter_context(open_regular_file(self._log_of(name)))
                reader, writer = os.pipe()
                opened.callback(os.close, reader)
                with open(writer, "wb") as answer:
                    command = isolated_python("distrun.supervisor.line_search", *args)
                    process = subprocess.Popen(command, stdin=log, stdout=answer)
            except OSError:
                self.next_due = self._clock() + _RETRY_SECONDS
                return
            opened.pop_all()
        self._searches[name] = _Search(process, log, reader)
        self._selector.register(reader, EVENT_READ, partial(self._on_answer, name))

    def _on_answer(self, name: str) -> None:
        has_printed = os.read(self._searches[name].answer, 1) != b""
        self._end_search(name)
        if has_printed:
            self._found.append(name)
        self.next_due = self._clock() + (0.0 if has_printed else _RETRY_SECONDS)

    def _end_search(self, name: str) -> None:
        search = self._searches.pop(name, None)
        if search is not None:
            self._selector.unregister(search.answer)
            os.close(search.answer)
            search.log.close()
            search.process.kill()
            search.process.returncode = -signal.SIGKILL  # reaped as any child that nobody asks for
