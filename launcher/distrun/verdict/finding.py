"""What one task died of, by its exit and its log."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import signal_name
from distrun.lifecycle.restarts import LIVED_LONG
from distrun.verdict.model import Evidence, Kind
from distrun.verdict.rules.resources import OWN_PORT_ADVICE, PORT_ADVICE
from distrun.verdict.rules.tables import KNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.lifecycle import TaskState
    from distrun.verdict.reading import Reading
    from distrun.verdict.rules.rule import Rule
    from distrun.verdict.statement import Statement

SIGKILL, SIGTERM = 9, 15
_TF_PREEMPTED = 42
CRASHES = (4, 5, 6, 7, 8, 11, 31)
"""SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: a program does these to itself."""
_PEER = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
_TENSORFLOW_ERROR = "errors_impl."
CAUGHT = re.compile("SIGTERM caught at")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`cause` goes on behind the task's name. `names` are the tasks that its error names."""

    task: str
    kind: Kind
    cause: str
    evidence: tuple[Evidence, ...]
    advice: str = ""
    is_echo: bool = False
    names: tuple[str, ...] = ()


def find(task: TaskState, reading: Reading) -> Finding:
    """What a task that ended by itself died of."""
    number = signal_of(task)
    if task.oom:
        return _out_of_memory(task)
    if number in CRASHES:
        return _crash(task, number, reading)
    if number == SIGTERM or task.code == _TF_PREEMPTED:
        return _preempted(task, reading)
    if task.signal is not None or (number == SIGKILL and reading.exception is None):
        return _killed(task, number or SIGKILL)
    return by_log(task, reading) or _exit(task, reading)


def signal_of(task: TaskState) -> int | None:
    """The signal that it, or the program that a shell ran for it, died of."""
    if task.signal is None and task.code is not None and 128 < task.code <= 128 + 64:
        return task.code - 128  # as a shell says it
    return task.signal


def by_log(task: TaskState, reading: Reading) -> Finding | None:
    """What its log says that it died of; None where that says nothing."""
    known = _known(task, reading, reading.statements)
    if known is not None:
        return known
    if reading.exception is None:
        return None
    name = reading.shown(reading.exception)
    if name.startswith("KeyboardInterrupt"):
        return Finding(
            task=task.name,
            kind=Kind.KILLED,
            cause="was interrupted by SIGINT",
            evidence=_error_lines(task, reading, reading.exception),
            advice="somebody or something sent it SIGINT: a scheduler, a shell, a person",
        )
    where = f", at {reading.frame[1]}" if reading.frame is not None else ""
    names = peers(reading.message, task.name)
    return Finding(
        task=task.name,
        kind=Kind.EXCEPTION,
        cause=f"failed with {_short(_told(reading))}{where}",
        evidence=_error_lines(task, reading, reading.exception),
        advice="see its traceback: distrun logs -t " + task.name,
        names=names if _TENSORFLOW_ERROR in name else (),
    )


def _known(
    task: TaskState, reading: Reading, statements: Sequence[Statement], kinds: Sequence[Kind] = ()
) -> Finding | None:
    """The first rule that fits one of them; of `kinds`, where any are given, or an echo."""
    for rule in KNOWN:
        if kinds and not rule.is_echo and rule.kind not in kinds:
            continue
        for said in statements:
            mark = rule.mark(said, task.code)
            if mark is not None:
                return _by_rule(task, reading, rule, mark)
    return None


def _by_rule(task: TaskState, reading: Reading, rule: Rule, mark: tuple[int, str]) -> Finding:
    index, text = mark
    line = reading.shown(index, text)
    place = f", at {reading.frame[1]}" if reading.frame is not None and not rule.is_echo else ""
    return Finding(
        task=task.name,
        kind=rule.kind,
        cause=f"{rule.cause}: {_short(line)}{place}",
        evidence=_error_lines(task, reading, index, text),
        advice=_port_advice(task, reading) if rule.kind is Kind.PORT_TAKEN else rule.advice,
        is_echo=rule.is_echo,
        names=peers(reading.said, task.name) if rule.is_echo else (),
    )


def _port_advice(task: TaskState, reading: Reading) -> str:
    """Of a task that has an address: that port is distrun's, for whoever takes it as TensorFlow."""
    own = (task.address or "").rpartition(":")[2]
    named = re.findall(r"(?<!\d)\d{4,5}(?!\d)", reading.said)
    if own and own in named:
        return OWN_PORT_ADVICE.format(own)
    if own and not named:
        return f"{PORT_ADVICE}; if it is {own}, the task's own: {OWN_PORT_ADVICE.format(own)}"
    return PORT_ADVICE


def peers(text: str, me: str) -> tuple[str, ...]:
    """The other tasks that a text names as TensorFlow names them."""
    named = [f"{role}:{index}" for role, index in _PEER.findall(text)]
    return tuple(dict.fromkeys(name for name in named if name != me))


def line_of(task: str, reading: Reading, index: int, mark: str = "") -> Evidence:
    text = reading.shown(index, mark)
    return Evidence(task=task, place=f"its log, {reading.place(index)}", text=text)


def _error_lines(
    task: TaskState, reading: Reading, index: int, mark: str = ""
) -> tuple[Evidence, ...]:
    """The line of the error, and before it the frame of the user's own that led there."""
    lines = [line_of(task.name, reading, index, mark)]
    if reading.frame is not None and reading.frame[0] != index:
        lines.insert(0, line_of(task.name, reading, reading.frame[0]))
    return tuple(lines)


def _told(reading: Reading) -> str:
    """The exception's line, and the next where it only opens what follows."""
    index = reading.exception or 0
    line = reading.shown(index)
    name, _, says = line.partition(":")
    short = name.rpartition(".")[2] if " " not in name else name
    return f"{short}: {says.strip()}" if says.strip() else short


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def _by_exit(task: TaskState, how: str) -> Evidence:
    return Evidence(task=task.name, place="its exit", text=how)


def exit_words(task: TaskState) -> str:
    if task.signal is not None:
        return f"was killed by {signal_name(task.signal)}"
    return f"exited {task.code}"


def _out_of_memory(task: TaskState) -> Finding:
    return Finding(
        task=task.name,
        kind=Kind.HOST_MEMORY,
        cause=f"ran out of memory: the kernel's OOM killer ended it on {task.host}",
        evidence=(
            Evidence(task=task.name, place=f"the kernel of {task.host}", text=task.oom),
            _by_exit(task, exit_words(task)),
        ),
        advice=(
            "use a smaller batch, shuffle buffer or cache, fewer tasks a host (`slots`), or "
            "raise the memory limit of the cgroup or container"
        ),
    )


def _killed(task: TaskState, number: int) -> Finding:
    words = exit_words(task)
    if task.signal is None:
        words += f", as after {signal_name(number)}"
    advice = "somebody or something sent it that signal: a scheduler, a person, a script"
    if number == SIGKILL:
        advice += (
            "; or it ran out of memory where distrun may not read the kernel's record of that "
            "(dmesg tells)"
        )
    return Finding(
        task=task.name,
        kind=Kind.KILLED,
        cause=f"{words}, from outside",
        evidence=(_by_exit(task, words),),
        advice=advice,
    )


def _preempted(task: TaskState, reading: Reading) -> Finding:
    words = exit_words(task)
    caught = reading.find_last(CAUGHT)
    evidence = [_by_exit(task, words)]
    if caught is not None:
        evidence.insert(0, line_of(task.name, reading, caught[0]))
    return Finding(
        task=task.name,
        kind=Kind.PREEMPTED,
        cause=f"was told to end from outside: it {words}",
        evidence=tuple(evidence),
        advice=(
            "somebody or something sent it SIGTERM: a scheduler that wants the machine back; with "
            f"`restart` in the spec such an end costs no restart after {LIVED_LONG:g} s of life or "
            "a step told through DISTRUN_NOTIFY"
        ),
    )


def _crashed_while_leaving(reading: Reading) -> bool:
    """Whether an exception had ended it before: TensorFlow's threads may outlive the interpreter.

    Every task has PYTHONFAULTHANDLER: a crash before that would have left Python's own lines.
    """
    if reading.exception is None:
        return False
    return reading.crash is None or (
        reading.crash > reading.exception
        and any("<no Python frame>" in line for line in reading.lines[reading.crash :])
    )


def _crash(task: TaskState, number: int | None, reading: Reading) -> Finding:
    words = exit_words(task)
    known = _known(task, reading, reading.aborting, (Kind.HOST_MEMORY,))
    if known is None and _crashed_while_leaving(reading):
        known = by_log(task, reading)
    if known is not None:
        return replace(known, evidence=(*known.evidence, _by_exit(task, words)))
    evidence = [_by_exit(task, words)]
    where = ""
    if reading.abort is not None:
        evidence.insert(0, line_of(task.name, reading, reading.abort))
        where = f": {_short(reading.shown(reading.abort))}"
    if reading.crash is not None:
        evidence.insert(0, line_of(task.name, reading, reading.crash))
        if reading.frame is not None:
            evidence.insert(1, line_of(task.name, reading, reading.frame[0]))
            where = where or f", at {reading.frame[1]}"
    advice = "a fault in native code: of a library, its build, or the driver; see its last lines"
    if number == 4:
        advice = "this CPU lacks instructions that a library was built for: use another build of it"
    return Finding(
        task=task.name,
        kind=Kind.CRASH,
        cause=f"crashed: it {words}{where}",
        evidence=tuple(evidence),
        advice=advice,
    )


def _exit(task: TaskState, reading: Reading) -> Finding:
    words = exit_words(task)
    evidence = [_by_exit(task, words)]
    index = reading.last_said()
    if index is not None and reading.lines[index].strip():
        evidence.insert(0, line_of(task.name, reading, index))
    if task.code in (126, 127):
        kind = Kind.PERMISSION if task.code == 126 else Kind.SCRIPT_NOT_FOUND
        return Finding(
            task=task.name,
            kind=kind,
            cause=f"{words}, as a shell does that cannot run a program",
            evidence=tuple(evidence),
            advice="check `program` in the spec, and the commands in the script",
        )
    return Finding(
        task=task.name,
        kind=Kind.EXIT,
        cause=f"{words} by its own decision",
        evidence=tuple(evidence),
        advice="see what it printed last: distrun logs -t " + task.name,
    )
