"""Finds out when tasks are ready for those that start after them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from distrun.agent.protocol import Cause, Code
from distrun.frozen import Frozen
from distrun.spec.model import Ready
from distrun.spec.regular_file import open_regular_file
from distrun.supervisor import line_search
from distrun.supervisor.hosts.local import isolated_python

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from distrun.agent.loop import Loop
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
        tasks: the job's.
        log_of: returns the path of a task's log.
        on_ready: called with a task that is ready, and its attempt.
    """

    def __init__(
        self,
        loop: Loop,
        tasks: Iterable[TaskPlan],
        log_of: Callable[[str], Path],
        on_ready: Callable[[str, int], None],
    ) -> None:
        self._loop, self._log_of, self._on_ready = loop, log_of, on_ready
        self._tasks: dict[str, TaskPlan] = {}
        self._attempts: dict[str, _Attempt] = {}
        """The attempts that run and are not ready."""
        self._searches: dict[str, _Search] = {}
        self._next = loop.call_at(None, self._search_all)
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
                self._next.move(self._loop.now())

    def forget(self, name: str) -> None:
        """Stop watching a task: its attempt has ended."""
        self._attempts.pop(name, None)
        self._end_search(name)

    def on_listening(self, name: str, ports: Collection[int]) -> None:
        """Note the ports on which a task listens: it may be ready now."""
        task = self._tasks.get(name)
        if task is not None and task.ready is Ready.PORT and task.port in ports:
            self._note_ready(name)

    def _search_all(self) -> None:
        for name in self._attempts:
            if self._tasks[name].ready is Ready.LINE and name not in self._searches:
                self._search(name)

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

    def _note_ready(self, name: str) -> None:
        attempt = self._attempts.pop(name, None)
        if attempt is not None:
            self._on_ready(name, attempt.number)

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
                self._next.move(self._loop.now() + _RETRY_SECONDS)
                return
            opened.pop_all()
        self._searches[name] = _Search(process, log, reader)
        self._loop.watch(reader, partial(self._on_answer, name))

    def _on_answer(self, name: str) -> None:
        has_printed = os.read(self._searches[name].answer, 1) != b""
        self._end_search(name)
        if has_printed:
            self._note_ready(name)
        else:
            self._next.move_forward(self._loop.now() + _RETRY_SECONDS)

    def _end_search(self, name: str) -> None:
        search = self._searches.pop(name, None)
        if search is not None:
            self._loop.unwatch(search.answer)
            os.close(search.answer)
            search.log.close()
            search.process.kill()
            search.process.returncode = -signal.SIGKILL  # reaped as any child that nobody asks for
