"""Calls that may take seconds, such as the analysis of a failure: made in forks.

So the loop can answer heartbeats in time, on which the leases of all hosts depend.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

from distrun.agent.linux import syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause
from distrun.codec import encode, from_json, to_json
from distrun.supervisor.forked_process import ForkedProcess

OnAnswer = Callable[[Any], None]

_SECONDS = 15.0
_VALID_SECONDS = 2.0
"""How long an answer is used again: all steps of a Slurm job may end at once."""
_BLOCK = 64 * 1024


class Question(NamedTuple):
    """A question that may take long to answer. Two `about` the same are asked once.

    `ask` runs in a fork; its answer is of `kind`. `join` returns the cause that was known, with the
    answer; None: the answer takes its place.
    """

    about: str
    ask: Callable[[], Any]
    kind: Any = Cause
    join: Callable[[Any], Cause] | None = None

    def cause(self, known: Cause, answer: Any) -> Cause:
        """Return a cause that was known, with the answer; None: it was not found out."""
        return (answer or known) if self.join is None else self.join(answer)


class BackgroundCalls:
    """The questions that wait for their answers. `job_id`: for the variables of the forks."""

    def __init__(self, loop: Loop, job_id: str) -> None:
        self._loop, self._job_id = loop, job_id
        self.kept: tuple[int, ...] = ()
        self._begun: list[BackgroundCall] = []
        self._running: dict[str, BackgroundCall] = {}
        self._waiting: dict[str, list[OnAnswer]] = {}
        self._answers: dict[str, tuple[float, Any]] = {}
        """When each question was answered (monotonic clock), and the answer."""

    def ask(self, question: Question, on_answer: OnAnswer) -> None:
        """Call `on_answer` with the answer; None: it was not found out, or not in time."""
        about, old = question.about, time.monotonic() - _VALID_SECONDS
        self._answers = {key: each for key, each in self._answers.items() if each[0] > old}
        if about in self._running:
            self._waiting[about].append(on_answer)
        elif about in self._answers:
            on_answer(self._answers[about][1])
        elif threading.active_count() > 1:
            # No fork while a display has its thread: of `doctor` or `plan`, which has no tasks.
            on_answer(_ask_here(question))
        else:
            self._waiting[about] = [on_answer]
            follow = partial(self._on_answer, question)
            try:
                self._running[about] = self.begin(question.ask, follow)
            except OSError:
                follow(to_json(_ask_here(question)))

    def begin(
        self,
        ask: Callable[[], Any],
        on_answer: OnAnswer,
        *,
        kept: tuple[int, ...] = (),
        seconds: float = _SECONDS,
    ) -> BackgroundCall:
        """Have a function run in a fork for as long as that; see :class:`BackgroundCall`."""
        self._begun = [each for each in self._begun if not each.is_closed]
        made = BackgroundCall(
            self._loop, ask, on_answer, self._job_id, (*self.kept, *kept), seconds
        )
        self._begun.append(made)
        return made

    def forget(self, on_answer: OnAnswer) -> None:
        """End a question, unless others wait for its answer, too."""
        for about, waiting in list(self._waiting.items()):
            if on_answer in waiting:
                waiting.remove(on_answer)
                if not waiting:
                    del self._waiting[about]
                    self._running.pop(about).close()

    def close(self) -> None:
        """End all calls, without an answer."""
        for each in self._running.values():
            each.close()
        self._running.clear()
        self._waiting.clear()

    @property
    def pids(self) -> set[int]:
        return {each.pid for each in self._begun if not each.is_closed}

    def _on_answer(self, question: Question, found: Any) -> None:
        about, answer = question.about, None
        if found is not None:
            with contextlib.suppress(ValueError):
                answer = from_json(question.kind, found)
        self._running.pop(about, None)
        self._answers[about] = time.monotonic(), answer
        for each in self._waiting.pop(about):
            each(answer)


class BackgroundCall:
    """A function that runs in a fork of this process, and its answer. Raises OSError: no fork.

    `on_answer` is called with the answer, as JSON has it; None: it was not found in time.
    """

    def __init__(
        self,
        loop: Loop,
        ask: Callable[[], Any],
        on_answer: OnAnswer,
        job_id: str,
        kept: tuple[int, ...],
        seconds: float,
    ) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self._answer = b""
        self._reader, writer = os.pipe()
        try:
            self._process = ForkedProcess(
                partial(_run, ask, writer),
                enter=partial(_enter, os.getpid()),
                name=f"distrun: question of {job_id}",
                job_id=job_id,
                kept=(writer, *kept),
                exit_code=0,
            )
        except OSError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self.pid: int = self._process.pid
        self.is_closed = False
        loop.watch(self._reader, self._on_readable)
        self._deadline = loop.call_at(loop.now() + seconds, self._give_up)

    def _give_up(self) -> None:
        self._answer = b""
        self._finish()

    def close(self) -> None:
        """End it; nobody needs the answer."""
        self.is_closed = True
        self._deadline.cancel()
        self._loop.unwatch(self._reader)
        os.close(self._reader)
        for kill in (os.killpg, os.kill):  # it may have no group yet; nobody has reaped it yet
            with contextlib.suppress(OSError):
                kill(self.pid, signal.SIGKILL)

    def _on_readable(self) -> None:
        block = os.read(self._reader, _BLOCK)
        self._answer += block
        if not block:
            self._finish()

    def _finish(self) -> None:
        self.close()
        answer = None
        with contextlib.suppress(ValueError):
            answer = json.loads(self._answer)
        self._on_answer(answer)


def _ask_here(question: Question) -> Any:
    """Return the answer; None after an error, as if a fork had it."""
    try:
        return question.ask()
    except Exception:  # noqa: BLE001 - whatever it is
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)
    return None


def _enter(parent: int) -> None:
    os.setsid()  # so that what it starts can be ended with it
    syscalls.die_with_parent(parent, signal.SIGKILL)


def _run(ask: Callable[[], Any], writer: int) -> NoReturn:
    answer = encode(ask()).encode()
    with open(writer, "wb") as file:
        file.write(answer)
    os._exit(0)
