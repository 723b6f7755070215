"""Calls that may take seconds, such as the analysis of a failure: made in forks.

So the loop can answer heartbeats in time, on which the leases of all hosts depend.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from distrun.agent.linux.forked_call import ForkedCall
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.codec import encode, from_json
from distrun.supervisor import forked_process

OnAnswer = Callable[[Any], None]

_SECONDS = 15.0
_VALID_SECONDS = 2.0
"""How long an answer is used again: all steps of a Slurm job may end at once."""


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
        self._begun: list[ForkedCall] = []
        self._asked: dict[str, tuple[ForkedCall, list[OnAnswer]]] = {}
        """The questions that are being asked, by what they are about, and who waits for answers."""
        self._answers: dict[str, tuple[float, Any]] = {}
        """When each question was answered (monotonic clock), and the answer."""

    def ask(self, question: Question, on_answer: OnAnswer) -> None:
        """Call `on_answer` with the answer; None: it was not found out, or not in time."""
        about, old = question.about, time.monotonic() - _VALID_SECONDS
        self._answers = {key: each for key, each in self._answers.items() if each[0] > old}
        if about in self._asked:
            self._asked[about][1].append(on_answer)
        elif about in self._answers:
            on_answer(self._answers[about][1])
        elif threading.active_count() > 1:
            # No fork while a display has its thread: of `doctor` or `plan`, which has no tasks.
            on_answer(_ask_here(question))
        else:
            call = self.begin(question.ask, partial(self._on_answer, question))
            self._asked[about] = call, [on_answer]

    def begin(
        self,
        ask: Callable[[], Any],
        follow: Callable[[bytes | Cause], object],
        *,
        kept: tuple[int, ...] = (),
        seconds: float = _SECONDS,
    ) -> ForkedCall:
        """Have a function run in a fork for as long as that; `follow` gets its answer as JSON."""
        self._begun = [each for each in self._begun if each.pid is not None]
        work = partial(_run, ask, self._job_id)
        made = ForkedCall(self._loop, work, seconds, follow, (*self.kept, *kept))
        self._begun.append(made)
        return made

    def forget(self, on_answer: OnAnswer) -> None:
        """End a question, unless others wait for its answer, too."""
        for about, (call, waiting) in list(self._asked.items()):
            if on_answer in waiting:
                waiting.remove(on_answer)
                if not waiting:
                    del self._asked[about]
                    call.close()

    def close(self) -> None:
        """End all calls, without an answer."""
        for call, _ in self._asked.values():
            call.close()
        self._asked.clear()

    @property
    def pids(self) -> set[int]:
        return {each.pid for each in self._begun if each.pid is not None}

    def _on_answer(self, question: Question, found: bytes | Cause) -> None:
        about, answer = question.about, None
        if not isinstance(found, Cause):
            with contextlib.suppress(ValueError):
                answer = from_json(question.kind, json.loads(found))
        elif found.code is Code.PROBE_NOT_STARTED:
            answer = _ask_here(question)
        self._answers[about] = time.monotonic(), answer
        for each in self._asked.pop(about)[1]:
            each(answer)


def _ask_here(question: Question) -> Any:
    """Return the answer; None after an error, as if a fork had it."""
    try:
        return question.ask()
    except Exception:  # noqa: BLE001 - whatever it is
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)
    return None


def _run(ask: Callable[[], Any], job_id: str) -> bytes:
    os.setsid()  # what it runs asks the user for nothing on a terminal
    forked_process.rename(f"distrun: question of {job_id}", job_id)
    return encode(ask()).encode()
