"""The report that `launch` prints at the end of a job that did not succeed."""

from __future__ import annotations

import contextlib
import re
from collections import Counter

from distrun import events, record
from distrun.agent.protocol.causes import Cause, Code
from distrun.cli.cause_text import advise_about, cause_text, exit_text
from distrun.cli.text_format import format_count, format_names, format_time
from distrun.cli.verdict_text import verdict_lines
from distrun.events import Origin, Outcome, Result
from distrun.jobstore import JobFolder
from distrun.lifecycle import Account, JobState, TaskState
from distrun.regular_file import open_regular_file
from distrun.spec.problems import printable
from distrun.verdict.log_analysis import attempt_start
from distrun.verdict.model import Verdict

_LAST_LINES = 12
_LAST_BYTES = 16 * 1024
_WIDEST = 400
_MOST_CAUSES = 4
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def task_end_text(task: TaskState) -> str:
    """Return how a task ended: `exited 3`, `was killed by SIGKILL`."""
    if task.reason is not None:
        reason = cause_text(task.reason)
        return f"could not be started: {reason}" if task.pid is None else reason
    if task.exit_status is None:
        return "was never started"
    return exit_text(task.code, task.signal)


def failure_report(folder: JobFolder, state: JobState) -> list[str]:
    """Return the lines of the report; the last one says who determined the exit code."""
    outcome = state.outcome
    if outcome is None:
        return []
    advise_about(folder)
    cause, *more = cause_text(_failure(outcome)).split("\n")
    lines = ["", f"job {state.job_id} {_headline(outcome, cause)}", *map(printable, more)]
    verdict = outcome.verdict
    if verdict is not None:
        lines += verdict_lines(verdict)
    first = state.tasks.get((verdict.task if verdict is not None else outcome.task) or "")
    if first is not None:
        lines += _about_first(folder, first)
    lines += _about_others(state, first, verdict)
    lines += _about_restarts(folder, state)
    lines.append(f"  logs   {printable(str(folder.logs))}   (distrun logs {state.job_id})")
    lines.append(exit_line(outcome))
    return lines


def exit_line(outcome: Outcome) -> str:
    """Return the exit code, and whether a task or distrun determined it."""
    if outcome.origin is Origin.TASK:
        return f"distrun: exit code {outcome.exit_code}, {outcome.task}'s own"
    cause = printable(cause_text(_failure(outcome)).partition("\n")[0])
    return f"distrun: exit code {outcome.exit_code}, distrun's: {cause}"


def _failure(outcome: Outcome) -> Cause:
    """Return the cause without the reason why nothing was restarted, which has its own line."""
    cause = outcome.cause
    return cause.within[0] if cause.code is Code.NOT_RESTARTED and cause.within else cause


def _headline(outcome: Outcome, cause: str) -> str:
    if outcome.result is Result.STOPPED:
        return f"was {printable(cause)}"
    return "failed" if outcome.task else f"failed: {printable(cause)}"


def _about_first(folder: JobFolder, task: TaskState) -> list[str]:
    when = f" at {format_time(task.exited_at)}" if task.exited_at is not None else ""
    pid = f" (pid {task.pid})" if task.pid is not None else ""
    what = task_end_text(task) + (", stopped by distrun" if task.stopped_by_us else "")
    where = f"{when} on {task.host}{pid}"
    # A reason is a sentence of its own, so it comes last.
    text = f"{printable(what)}{where}" if task.reason is None else f"{where[1:]}: {printable(what)}"
    lines = [f"  first  {task.name} {text}"]
    tail = _tail(folder, task.name)
    if tail is None:
        lines.append("  its log cannot be read")
    elif tail:
        lines.append("  its last lines:")
        lines += [f"    | {line}" for line in tail]
    elif task.pid is not None:
        lines.append("  it had printed nothing")
    return lines


def _tail(folder: JobFolder, task: str) -> list[str] | None:
    """Return the last lines of its last attempt; None if the log cannot be read."""
    try:
        with open_regular_file(folder.log_of(task)) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            raw = file.read()
    except OSError:
        return None
    raw = raw[attempt_start(raw) :]
    lines = raw.decode("utf-8", "replace").rstrip("\n").split("\n")[-_LAST_LINES:]
    return [_last_drawn(line) for line in lines if raw]


def _last_drawn(line: str) -> str:
    """Return a line without colours, and of a progress bar only what was drawn last."""
    last = line.rstrip("\r").rpartition("\r")[2]
    shown = printable(_COLOUR.sub("", last).expandtabs())
    return shown if len(shown) <= _WIDEST else shown[:_WIDEST] + "…"


def _about_restarts(folder: JobFolder, state: JobState) -> list[str]:
    """Return how often the job was restarted and why, and why it was not restarted any more."""
    outcome = state.outcome
    is_final = outcome is not None and outcome.cause.code is Code.NOT_RESTARTED
    reasons = outcome.cause.within[1:] if outcome is not None and is_final else ()
    why = [f"  after  not restarted: {printable(cause_text(each))}" for each in reasons]
    made = state.restarts_made
    if not made:
        return why
    causes: Counter[str] = Counter()
    with contextlib.suppress(OSError):
        for event in record.read(str(folder.events_file)):
            if isinstance(event, events.RestartPlanned) and _is_of_job(event, state):
                causes[cause_text(event.cause)] += 1
    most_frequent = [
        cause if times == 1 else f"{cause} ({times} times)"
        for cause, times in causes.most_common(_MOST_CAUSES)
    ]
    after = f": {printable(', '.join(most_frequent))}" if most_frequent else ""
    return [f"  before it had been restarted {format_count(made, 'time')}{after}", *why]


def _is_of_job(event: events.RestartPlanned, state: JobState) -> bool:
    """Whether it counts for the job: an evaluator's restarts are counted apart."""
    tasks = (state.tasks[name] for name in event.tasks if name in state.tasks)
    return any(task.account is Account.JOB for task in tasks)


def _about_others(state: JobState, first: TaskState | None, verdict: Verdict | None) -> list[str]:
    """Return how the other tasks ended; those that ended alike share a line."""
    after: dict[str, list[str]] = {}
    for task in state.tasks.values():
        if task is first:
            continue
        what = task_end_text(task)
        if task.stopped_by_us and task.pid is not None:
            what = f"{what}, stopped by distrun"
        elif verdict is not None and task.name in verdict.echoes:
            what = f"{what}, which followed from that"
        elif verdict is not None and task.name in verdict.alike:
            what = f"{what}, of the same error"
        after.setdefault(what, []).append(task.name)
    label = "then " if first is not None else "tasks"
    lines = []
    for how_ended, names in after.items():
        what = how_ended
        if len(names) > 1 and what.startswith("was "):
            what = f"were {what[4:]}"
        lines.append(f"  {label}  {format_names(names)} {printable(what)}")
    return lines
