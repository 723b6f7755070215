"""Asks all hosts at once for the stacks of their tasks, and collects the answers."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol import StacksTaken, TakeStacks
from distrun.agent.protocol.stack_messages import (
    DumpStacks,
    ProgramData,
    ProgramRequested,
    StacksDumped,
)
from distrun.codec import to_json
from distrun.frozen import replace
from distrun.job import py_spy, stacks
from distrun.job.stacks import Stacks
from distrun.lifecycle import TaskPhase
from distrun.supervisor.clients import Client
from distrun.supervisor.running_job import RunningJob

_SECONDS = 30.0
"""How long hosts may take to answer, with the time to send them py-spy."""
_STALLED_SECONDS = 5.0
"""The same in a job that makes no progress, before it is stopped."""
_BLOCK = 64 * 1024
_RUNNING = (TaskPhase.RUNNING, TaskPhase.STOPPING)


class _Question(NamedTuple):
    hosts: set[str]
    on_answer: Callable[[Stacks], None]
    answer: Stacks
    client: Client | None


class StackCollector:
    """Any number of questions may wait for their answers."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._questions: dict[int, _Question] = {}
        self._last = 0
        self._program = ""
        self.commands = 0
        """How many commands wait for an answer."""

    def ask(
        self,
        names: Collection[str],
        program: str,
        on_answer: Callable[[Stacks], None],
        *,
        seconds: float = _SECONDS,
        native: bool = False,
        recorded: int = 0,
        client: Client | None = None,
    ) -> None:
        """Ask the hosts for the stacks of those of the tasks `names` that run.

        `program`: the path of py-spy; '': there is none. `on_answer` is called once, after so many
        seconds at most. `recorded`: record for so many seconds; 0: look once. `client`: who asks.
        """
        state = self._job.state
        tasks: dict[str, list[str]] = {}
        for task in state.tasks.values():
            if task.name in names and task.phase in _RUNNING:
                tasks.setdefault(task.host, []).append(task.name)
        lost = {name for name in tasks if state.hosts[name].link_lost is not None}
        answer = Stacks(silent=dict.fromkeys(sorted(lost), "its link is lost"))
        try:
            digest, size = _identity(program, os.stat(program).st_mtime_ns) if program else ("", 0)
        except OSError as error:
            problem = f"{program} cannot be read: {os.strerror(error.errno or 0)}"
            on_answer(replace(answer, silent=dict.fromkeys(tasks, problem)))
            return
        self._program = program
        self._last += 1
        asked, number, late = tasks.keys() - lost, self._last, "it has not answered in time"
        self._questions[number] = _Question(asked, on_answer, answer, client)
        limit = self._job.loop.now() + seconds + recorded
        self._job.loop.call_at(limit, lambda: self._settle(number, asked, late))
        for host in asked:
            path = "" if self._job.has_own_logs(host) else program
            order = DumpStacks(number, tasks[host], native, path, digest, size, recorded)
            self._job.hosts.order(host, order)
        self._settle(number, (), "")

    def answer_command(self, request: TakeStacks, client: Client) -> None:
        def answer(found: Stacks) -> None:
            self.commands -= 1
            if not client.ended:
                processes = found.processes
                if request.program is None and not program:
                    processes = [replace(each, error=py_spy.MISSING) for each in processes]
                client.send(StacksTaken([to_json(each) for each in processes], found.silent))

        self.commands += 1
        names = set(request.tasks or self._job.state.tasks)
        native, recorded = request.native, request.seconds
        program = py_spy.find() or "" if request.program is None else request.program
        if not (program or recorded):
            answer(Stacks(silent=dict.fromkeys(self._job.state.hosts, py_spy.MISSING)))
        else:
            self.ask(names, program, answer, native=native, recorded=recorded, client=client)

    def forget(self, client: Client) -> None:
        """Have the hosts stop what they record for a command that has gone."""
        of_client = [n for n, each in self._questions.items() if each.client is client]
        for number in of_client:
            hosts = [*self._questions[number].hosts]
            for host in hosts:
                self._job.hosts.order(host, DumpStacks(number, [], False, "", "", 0, 0))
            self._settle(number, hosts, "")

    def ask_stalled(self, on_answer: Callable[[Stacks], None]) -> None:
        """Ask for the stacks of all tasks of a job that is to be stopped; wait only briefly."""
        program = py_spy.find()
        if program is None:
            on_answer(Stacks())
        else:
            self.ask(self._job.state.tasks, program, on_answer, seconds=_STALLED_SECONDS)

    def receive(self, host: str, report: StacksDumped | ProgramRequested) -> None:
        """Note a host's answer, or send it the program."""
        if isinstance(report, ProgramRequested):
            if self._program:  # a host may ask for one without having been offered any
                packed = _packed(self._program, os.stat(self._program).st_mtime_ns)
                for start in range(0, len(packed), _BLOCK):
                    block, is_last = packed[start : start + _BLOCK], start + _BLOCK >= len(packed)
                    self._job.hosts.order(host, ProgramData(is_last, block))
            return
        question = self._questions.get(report.number)
        if question is None or host not in question.hosts:
            return
        why = "" if report.text else "py-spy could not be run there"
        text = report.text or "[]"
        if folder := self._job.state.hosts[host].folder:  # to which the program was sent
            text = text.replace(json.dumps(f"{folder}/files/")[1:-1], "")
        try:
            where = "" if host == "localhost" else f" on {host}"
            for each in stacks.decode(text):
                error = each.error + (where if each.is_suspended else "")
                question.answer.processes.append(replace(each, error=error))
        except ValueError as error:
            why = f"its answer cannot be read: {error}"
        self._settle(report.number, [host], why)

    def _settle(self, number: int, hosts: Iterable[str], why_silent: str) -> None:
        """Stop waiting for these hosts. Deliver the answer if they were the last ones."""
        question = self._questions.get(number)
        if question is None:
            return
        for host in question.hosts.intersection(hosts):
            question.hosts.remove(host)
            if why_silent:
                question.answer.silent[host] = why_silent
        if not question.hosts:
            del self._questions[number]
            question.on_answer(question.answer)


@lru_cache(maxsize=1)
def _identity(program: str, _mtime: int) -> tuple[str, int]:
    import hashlib

    content = _read(program)
    return hashlib.sha256(content).hexdigest(), len(content)


@lru_cache(maxsize=1)
def _packed(program: str, _mtime: int) -> bytes:
    """A program compressed, for hosts that lack it. More takes thrice as long for a tenth."""
    return zlib.compress(_read(program), 1)


def _read(program: str) -> bytes:
    with open(open_regular(program, os.O_RDONLY), "rb") as file:
        return file.read()
