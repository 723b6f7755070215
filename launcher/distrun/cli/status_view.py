"""The output of `status`: a headline, how the job ended, and a row for each task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol.causes import Cause
from distrun.cli.table import Column, make_table, styled
from distrun.cli.timing_view import first_times
from distrun.job.events import Origin, Result
from distrun.job.job import LOST, Job, TaskView
from distrun.lifecycle import TaskPhase
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.words.advice import advice_text
from distrun.words.causes import cause_text
from distrun.words.events import quiet_advice, quiet_text, resumed_text
from distrun.words.formats import (
    age_text,
    format_count,
    format_duration,
    format_names,
    format_time,
    format_used,
)
from distrun.words.progress import progress_words
from distrun.words.queue import queue_text
from distrun.words.verdicts import evidence_lines, replacement_text, verdict_lines

_COLUMNS = (
    Column("TASK"),
    Column("STATE"),
    Column("HOST", drop_rank=3),
    Column("PID", right=True, drop_rank=5),
    Column("ATTEMPT", right=True, drop_rank=4),
    Column("EXIT"),
    Column("CPU", right=True, drop_rank=2),
    Column("MEM", right=True, drop_rank=2),
    Column("GPU MEM", right=True, drop_rank=2),
    Column("TIME", right=True, drop_rank=1),
    Column("SEEN", right=True, drop_rank=3),
    Column("PROGRESS"),
)
_DROP_FIRST = 9
_HTML_COLUMNS = 120
_MOST_REPLACEMENTS = 3
_FEWEST_ROWS = 1
_OTHER_ROWS = 2
"""The table's heading, and the line that counts the tasks that are not shown."""


def status_view(job: Job, width: int, height: int | None = None) -> Group:
    """Return a job as text of so many columns.

    With a height, tasks for which there is no space are counted instead of shown, first those in
    the most frequent state.
    """
    parts: list[Any] = [headline(job, width), *map(_plain, job_notes(job))]
    if job.tasks:
        above = sum(1 + max(0, each.cell_len - 1) // width for each in parts)
        space = len(job.tasks) if height is None else height - above - _OTHER_ROWS
        shown = _rarest(job.tasks, max(_FEWEST_ROWS, space))
        parts.append(make_table(_columns(job.tasks), [task_row(task) for task in shown], width))
        if len(shown) < len(job.tasks):
            hidden = [task for task in job.tasks if task not in shown]
            parts.append(_plain(f"and {len(hidden)} more: {_count_phases(hidden)}"))
    return Group(*parts)


def status_html(job: Job) -> str:
    """Return the same as HTML."""
    console = Console(record=True, width=_HTML_COLUMNS, file=StringIO())
    console.print(status_view(job, _HTML_COLUMNS))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def headline(job: Job, width: int) -> Text:
    """Return the job in one row; without its strategy if the row is too narrow."""
    state = job.state
    end = state.ended_at or (time.time() if job.is_running else state.created_at)
    words = [state.strategy, _count_phases(job.tasks) if len(job.tasks) > 1 else ""]
    words.append(format_duration(end - state.created_at) if end > state.created_at else "")
    lines = [
        Text.assemble(
            (job.folder.job_id, "bold"), "  ", styled(job.phase),
            *(f"  {printable(word)}" for word in line if word),
        )
        for line in (words, words[1:])
    ]  # fmt: skip
    return lines[0] if lines[0].cell_len <= width else lines[1]


def _count_phases(tasks: Sequence[TaskView]) -> str:
    """Return `62 running, 2 failed`."""
    counts = Counter(task.phase for task in tasks)
    return ", ".join(f"{count} {phase}" for phase, count in counts.most_common())


def _plain(text: str) -> Text:
    return Text(printable(text))


def job_notes(job: Job, *, has_times: bool = True) -> list[str]:
    notes = []
    outcome = job.outcome
    if outcome is not None and outcome.result is not Result.SUCCEEDED:
        whose = outcome.task if outcome.origin is Origin.TASK else "distrun"
        cause, *more = cause_text(outcome.cause).split("\n")
        notes += [f"{cause}; exit code {outcome.exit_code}, {whose}'s", *more]
    if job.queued is not None and job.queued.is_active and job.queued.entry is not None:
        notes.append(queue_text(job.queued.entry))
    if job.is_lost and job.queued is not None:
        notes.append(
            f"Slurm no longer knows its job {job.state.batch_id}, and its record has no end"
        )
    elif job.is_lost and job.record_fault is not None:
        notes.append(f"its record {job.record_fault}; its result is lost")
    elif job.is_lost:
        notes.append("its supervisor died, or its record is damaged; its result is lost")
    elif not job.state.job_id:
        notes.append("its record is damaged: the beginning is missing")
    if job.is_running:
        notes += _notes_while_running(job)
    notes += _notes_on_hosts(job)
    if job.state.verdict is not None:
        verdict = job.state.verdict
        is_of_outcome = outcome is not None and outcome.verdict == verdict
        has_succeeded = outcome is not None and outcome.result is Result.SUCCEEDED
        is_past = not is_of_outcome and (has_succeeded or verdict.repeats_outcome)
        is_success = is_of_outcome and has_succeeded
        notes += job.warnings if is_success else []
        notes += evidence_lines(verdict) if is_success else verdict_lines(verdict, is_past=is_past)
    notes += map(replacement_text, job.other_replacements[-_MOST_REPLACEMENTS:])
    words = first_times(job.timing) if has_times and not job.is_running else []
    notes += [*_notes_on_attempts(job), *([", ".join(words)] if words else [])]
    if job.tensorboard:
        notes.append(f"TensorBoard: {job.tensorboard}")
    return notes


def _notes_on_attempts(job: Job) -> list[str]:
    notes = []
    if job.restarts:
        times = format_count(job.restarts, "time")
        left = f"; {format_count(job.restarts_left, 'restart')} left" if job.is_running else ""
        notes.append(f"restarted {times}{left}")
    notes += [resumed_text(job.state)] if job.state.resumed_at else []
    if job.is_running and job.state.former_hosts:
        names = format_names(job.state.former_hosts)
        notes.append(f"making sure that nothing of earlier attempts is left on {names}")
    if job.resume_command is not None:
        notes.append(f"to continue it: {job.resume_command}")
    return notes


def _notes_while_running(job: Job) -> list[str]:
    notes = [f"about {format_duration(job.time_left)} left"] if job.time_left is not None else []
    if job.advice is not None:
        notes.append(advice_text(job.advice, job.state.name))
    if job.behind is not None and (job.advice is None or job.advice.task not in job.behind):
        notes.append(job.behind)
    if job.state.quiet_since is not None and job.state.outcome is None:
        notes.append(quiet_text(max(0.0, time.time() - job.state.quiet_since)))
        notes.append(quiet_advice(job.folder.job_id))
    most = job.state.timeouts.start
    limit = "" if most is None else f", at most {format_duration(most)} (timeouts.start)"
    notes += [
        f"{cause_text(restart.waits_for_host)}; waiting for a host{limit}"
        for restart in job.state.restarts.values()
        if restart.waits_for_host is not None
    ]
    notes += [
        f"the exit of {restart.refused_by} ends the job, unless the loss of a host explains it: "
        "waiting until all other hosts have stopped their tasks"
        for restart in job.state.restarts.values()
        if restart.refused_by
    ]
    notes += [
        _lost_link(host.name, host.link_lost, host.link_lost_at or 0.0)
        for host in job.state.hosts.values()
        if host.link_lost is not None
    ]
    return notes


def _notes_on_hosts(job: Job) -> list[str]:
    """Return why hosts are not used, and if so, which are in use and which are spares."""
    notes, names = [], dict[str, list[str]]()
    for host in job.state.hosts.values():
        state = job.host_state(host)
        names.setdefault(state, []).append(host.name)
        since = "" if host.lost_at is None else f"since {format_time(host.lost_at)}, "
        why = host.fault or host.left_out or host.lost
        if why is not None:
            lost = since if state == "lost" else ""
            notes.append(f"{host.name} is {state}: {lost}{cause_text(why)}")
    if names.keys() <= {"in use", "link lost"} or not job.state.tasks:
        return notes
    words = {"in use": "hosts in use", "spare": "spare hosts"}
    found = [f"{words[each]}: {format_names(names[each])}" for each in words if each in names]
    return notes + (["; ".join(found)] if found else [])


def _lost_link(host: str, cause: Cause, since: float) -> str:
    seconds = format_duration(max(0.0, time.time() - since))
    return f"{host}: the link has been lost for {seconds} ({cause_text(cause)})"


def _rarest(tasks: Sequence[TaskView], space: int) -> Sequence[TaskView]:
    """Return as many tasks as there is space for, in their order, those in rare phases first."""
    if len(tasks) <= space:
        return tasks
    counts = Counter(task.phase for task in tasks)
    ranked = sorted(range(len(tasks)), key=lambda i: (counts[tasks[i].phase], i))
    return [tasks[i] for i in sorted(ranked[:space])]


def _columns(tasks: Sequence[TaskView]) -> list[Column]:
    """Return the columns; those that say nothing new are dropped first if space is short."""
    no_news = set()
    if {task.state.host for task in tasks} == {"localhost"}:
        no_news.add("HOST")
    if not any(task.state.attempt for task in tasks):
        no_news.add("ATTEMPT")
    return [replace(c, drop_rank=_DROP_FIRST) if c.title in no_news else c for c in _COLUMNS]


def task_row(task: TaskView) -> dict[str, str | Text]:
    """Return the cells of a task by the titles of the columns."""
    state, usage = task.state, task.usage
    exit_code = "" if state.code is None else str(state.code)
    gpu = None if usage is None else usage.gpu_memory_bytes
    is_running = state.phase is TaskPhase.RUNNING
    progress = " ".join(progress_words(task.progress, is_running=is_running))
    return {
        "TASK": state.name,
        "STATE": _phase(task),
        "HOST": state.host,
        "PID": "" if state.pid is None else str(state.pid),
        "ATTEMPT": str(state.attempt),
        "EXIT": exit_code if state.signal is None else signal_name(state.signal),
        "CPU": _cpu(task),
        "MEM": _memory(task),
        "GPU MEM": format_bytes(gpu) if gpu else "",
        "TIME": _duration(task),
        "SEEN": _last_sign(task),
        "PROGRESS": progress,
    }


def _last_sign(task: TaskView) -> str:
    """Return how long ago a running task reported progress, or else printed something."""
    if task.state.phase is not TaskPhase.RUNNING or task.phase == LOST:
        return ""
    if task.progress_at is not None:
        return age_text(task.progress_at)
    at = task.last_output_at
    return "" if at is None else age_text(at)


def _cpu(task: TaskView) -> str:
    """Return the load, or, once it has ended, the time that it has used."""
    if task.usage is not None:
        percent = task.usage.cpu_percent
        return "unknown" if percent is None else f"{percent:.0f}%"
    return format_used(task.used.cpu_seconds, format_duration) if _has_used(task) else ""


def _memory(task: TaskView) -> str:
    """Return the memory, or, once it has ended, the peak of it."""
    if task.usage is not None:
        return format_used(task.usage.memory_bytes, format_bytes)
    if not _has_used(task):
        return ""
    return format_used(task.used.peak_memory_bytes, lambda peak: f"{format_bytes(peak)} peak")


def _has_used(task: TaskView) -> bool:
    """Whether an attempt of it has ended. Of one that has just begun, nothing is known yet."""
    return task.phase == LOST or task.state.ended_at is not None or task.state.attempt > 0


def _duration(task: TaskView) -> str:
    state = task.state
    end = state.exited_at or (None if task.phase == LOST else time.time())
    seconds = state.lived
    if seconds is None and state.started_at is not None and end is not None:
        seconds = end - state.started_at
    return "" if seconds is None else format_duration(seconds)


def _phase(task: TaskView) -> Text:
    """Return `restarting in 4 s`, `lost (was running)`, or the phase alone."""
    if task.phase == LOST:
        return styled(LOST, f"(was {task.state.phase.value})")
    wait = (task.restarts_at or 0.0) - time.time()
    return styled(task.phase, f"in {format_duration(wait)}" if wait > 0 else "")
