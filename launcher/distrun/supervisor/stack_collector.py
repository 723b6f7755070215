"""Asks all hosts at once where the threads of their tasks stand, and collects the answers."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol import StacksTaken
from distrun.agent.protocol.stack_messages import (
    DumpStacks,
    ProgramData,
    ProgramRequested,
    StacksDumped,
)
from distrun.codec import to_json
from distrun.frozen import Frozen, field, replace
from distrun.job import stacks
from distrun.lifecycle import TaskPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distrun.agent.loop import Loop
    from distrun.agent.protocol import Order, Report, TakeStacks
    from distrun.lifecycle import JobState
    from distrun.supervisor.clients import Client

_SECONDS = 30.0
"""How long hosts may take to answer, with the time to send them py-spy."""
_STALLED_SECONDS = 5.0
"""The same in a job that makes no progress, before it is stopped."""
_BLOCK = 64 * 1024
_RUNNING = (TaskPhase.RUNNING, TaskPhase.STOPPING)


class Stacks(Frozen, kw_only=True):
    """What the hosts have answered. `silent`: those that have not, and why."""

    processes: list[stacks.ProcessStacks] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)


class _Question:
    def __init__(
        self, hosts: set[str], on_answer: Callable[[Stacks], None], answer: Stacks
    ) -> None:
        self.hosts, self.on_answer, self.answer = hosts, on_answer, answer


def find_program() -> str | None:
    """Return the path of py-spy: beside this interpreter, or in PATH; None: it is not installed."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), stacks.PY_SPY)
    found = beside if os.access(beside, os.X_OK) else shutil.which(stacks.PY_SPY)
    return None if found is None else os.path.realpath(found)


class StackCollector:
    """Any number of questions may wait for their answers.

    Args:
        order: sends an order to a host.
        has_own_files: returns whether a host does not see this machine's files.
    """

    def __init__(
        self,
        loop: Loop,
        order: Callable[[str, Order], None],
        has_own_files: Callable[[str], bool],
    ) -> None:
        self._loop, self._order, self._has_own_files = loop, order, has_own_files
        self._questions: dict[int, _Question] = {}
        self._last = 0
        self._program = ""

    def ask(
        self,
        state: JobState,
        names: Collection[str],
        program: str,
        on_answer: Callable[[Stacks], None],
        *,
        seconds: float = _SECONDS,
        native: bool = False,
        recorded: int = 0,
    ) -> None:
        """Ask the hosts where those of the tasks stand that run.

        Args:
            state: the job's.
            names: the tasks'.
            program: the path of py-spy; '': there is none, which suffices for recordings.
            on_answer: called once, with what has been answered.
            seconds: how long to wait for hosts.
            native: whether to show frames of C and C++ functions, too.
            recorded: record for so many seconds; 0: look once.
        """
        tasks: dict[str, list[str]] = {}
        for task in state.tasks.values():
            if task.name in names and task.phase in _RUNNING:
                tasks.setdefault(task.host, []).append(task.name)
        lost = {name for name in tasks if state.hosts[name].link_lost is not None}
        answer = Stacks(silent=dict.fromkeys(sorted(lost), "its link is lost"))
        try:
            digest, size = "", 0
            if program:
                digest, size = _identity(program, os.stat(program).st_mtime_ns)
        except OSError as error:
            problem = f"{program} cannot be read: {os.strerror(error.errno or 0)}"
            on_answer(replace(answer, silent=dict.fromkeys(tasks, problem)))
            return
        self._program = program
        self._last += 1
        asked = tasks.keys() - lost
        number = self._last
        self._questions[number] = _Question(asked, on_answer, answer)
        self._loop.call_at(self._loop.now() + seconds + recorded, lambda: self._answer(number))
        for host in asked:
            path = "" if self._has_own_files(host) else program
            order = DumpStacks(number, tasks[host], native, path, digest, size, recorded)
            self._order(host, order)
        self._answer_complete()

    def take(self, state: JobState, request: TakeStacks, client: Client) -> None:
        """Answer a command."""

        def answer(found: Stacks) -> None:
            if not client.ended:
                processes = [to_json(each) for each in found.processes]
                client.send(StacksTaken(processes, found.silent))

        names, program = set(request.tasks or state.tasks), request.program
        native, recorded = request.native, request.seconds
        self.ask(state, names, program, answer, native=native, recorded=recorded)

    def ask_stalled(self, state: JobState, on_answer: Callable[[Stacks], None]) -> None:
        """Ask where all tasks stand, of a job that is to be stopped: it waits for little."""
        program = find_program()
        if program is None:
            on_answer(Stacks())
        else:
            self.ask(state, state.tasks, program, on_answer, seconds=_STALLED_SECONDS)

    def _send_program(self, host: str) -> None:
        packed = _packed(self._program, os.stat(self._program).st_mtime_ns)
        for start in range(0, len(packed), _BLOCK):
            is_last = start + _BLOCK >= len(packed)
            self._order(host, ProgramData(is_last, packed[start : start + _BLOCK]))

    def receive(self, host: str, report: Report) -> None:
        """Note a host's answer, or send it the program."""
        if isinstance(report, ProgramRequested):
            self._send_program(host)
            return
        question = isinstance(report, StacksDumped) and self._questions.get(report.number)
        if not isinstance(report, StacksDumped) or not question or host not in question.hosts:
            return
        question.hosts.remove(host)
        try:
            found = stacks.decode(report.text)
        except ValueError as error:
            question.answer.silent[host] = f"its answer cannot be read: {error}"
        else:
            question.answer.processes.extend(found)
            if not found:
                question.answer.silent[host] = "py-spy could not be run there"
        self._answer_complete()

    def forget_host(self, host: str) -> None:
        """A host is lost: its answer is not waited for."""
        for question in self._questions.values():
            if host in question.hosts:
                question.hosts.remove(host)
                question.answer.silent[host] = "it was lost"
        self._answer_complete()

    def _answer_complete(self) -> None:
        for number, question in list(self._questions.items()):
            if not question.hosts:
                self._answer(number)

    def _answer(self, number: int) -> None:
        """Deliver an answer: it is complete, or has been waited for long enough."""
        question = self._questions.pop(number, None)
        if question is not None:
            for host in question.hosts:
                question.answer.silent[host] = "it has not answered in time"
            question.on_answer(question.answer)


@lru_cache(maxsize=1)
def _identity(program: str, _mtime: int) -> tuple[str, int]:
    """The SHA-256 of a program, and its size."""
    import hashlib

    content = _read(program)
    return hashlib.sha256(content).hexdigest(), len(content)


@lru_cache(maxsize=1)
def _packed(program: str, _mtime: int) -> bytes:
    """A program compressed, for hosts that lack it. More takes thrice as long for a tenth."""
    import zlib

    return zlib.compress(_read(program), 1)


def _read(program: str) -> bytes:
    with open(open_regular(program, os.O_RDONLY), "rb") as file:
        return file.read()
