"""The messages that ask for the stacks of tasks, and answer."""

from __future__ import annotations

from typing import List

from distrun.agent.protocol import Order, Report

# From supervisor to agent ------------------------------------------------------------------


class DumpStacks(Order):
    """Report the stacks of the Python threads of these tasks, by the program py-spy.

    `number` identifies the answer; without `tasks`, nobody waits for it any more. The program is at
    the path `program`, or, on another host, it is sent: it has that SHA-256 and size (bytes).
    `native`: with the frames of C and C++ functions. `seconds`: record for so long instead, also
    without a program (no digest); 0: look once.
    """

    number: int
    tasks: List[str]
    native: bool
    program: str
    digest: str
    size: int
    seconds: int


class ProgramData(Order):
    """A part of the program, compressed by zlib. `last`: it is complete."""

    last: bool
    data: bytes


# From agent to supervisor ------------------------------------------------------------------


class ProgramRequested(Report):
    """This host lacks the program with that SHA-256."""

    digest: str


class StacksDumped(Report):
    """Answers DumpStacks. `text` is a JSON list of :mod:`distrun.job.stacks`; '': it has failed."""

    number: int
    text: str
