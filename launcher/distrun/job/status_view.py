"""What `status` shows of a job: a headline, notes and a row for each task; or its timing."""

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
from distrun.job.job import LOST, Job, TaskView
from distrun.job.notes import job_notes
from distrun.job.timing import AttemptTiming
from distrun.lifecycle import TaskPhase
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.words.events import timing_title
from distrun.words.formats import age_text, format_duration, format_time, format_used, wrapped
from distrun.words.progress import progress_words
from distrun.words.table import Column, make_table, styled

_COLUMNS = (
    Column("TASK"),
    Column("STATE"),
    Column("HOST", drop_rank=1),
    Column("PID", right=True, drop_rank=7),
    Column("ATTEMPT", right=True, drop_rank=6),
    Column("EXIT"),
    Column("CPU", right=True, drop_rank=3),
    Column("MEM", right=True, drop_rank=4),
    Column("GPU MEM", right=True, drop_rank=4),
    Column("TIME", right=True, drop_rank=5),
    Column("SEEN", right=True, drop_rank=2),
    Column("PROGRESS", least=40),
)
_DROP_FIRST = 9
_HTML_COLUMNS = 120


def status_view(job: Job, width: int) -> Group:
    """Return a job as text of so many columns."""
    notes = (wrapped(printable(each), width) for each in job_notes(job))
    parts: list[Any] = [headline(job, width)]
    parts += (Text(each, no_wrap=True, overflow="ignore") for each in notes)
    if job.tasks:
        parts.append(make_table(_columns(job.tasks), list(map(task_row, job.tasks)), width))
    return Group(*parts)


def status_html(job: Job) -> str:
    # In a notebook's kernel, rich would display what is printed.
    console = Console(record=True, width=_HTML_COLUMNS, file=StringIO(), force_jupyter=False)
    console.print(status_view(job, _HTML_COLUMNS))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def headline(job: Job, width: int) -> Text:
    """Return the job in one row; without its strategy if the row is too narrow, or in two."""
    state = job.state
    end = state.ended_at or (time.time() if job.is_running else state.created_at)
    counts = Counter(task.phase for task in job.tasks)
    phases = (f"{count} {phase}" for phase, count in counts.most_common())
    words = [state.strategy, ", ".join(phases) if len(job.tasks) > 1 else ""]
    words.append(format_duration(end - state.created_at) if end > state.created_at else "")
    head = Text.assemble((job.folder.job_id, "bold"), "  ", styled(job.phase))
    for cells in (words, words[1:]):
        rest = "  ".join(printable(word) for word in cells if word)
        fits = head.cell_len + 2 + len(rest) <= width
        if fits:
            break
    return Text.assemble(head, ("  " if fits else "\n") if rest else "", rest)


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
    is_over = task.phase == LOST or state.has_ended
    end = state.exited_at or (None if is_over else time.time())
    seconds = state.exit.lived
    if seconds is None and state.started_at is not None and end is not None:
        seconds = end - state.started_at
    return "" if seconds is None else format_duration(seconds)


def _phase(task: TaskView) -> Text:
    """Return `restarting in 4 s`, `lost (was running)`, `running (suspended)`, or the phase."""
    if task.phase == LOST:
        return styled(LOST, f"(was {task.state.phase.value})")
    wait = (task.restarts_at or 0.0) - time.time()
    rest = "" if task.suspended_pid is None else "(suspended)"
    return styled(task.phase, f"in {format_duration(wait)}" if wait > 0 else rest)


def timing_view(attempts: Sequence[AttemptTiming], width: int) -> Group:
    """Return the attempts as text of so many columns: a table for each."""
    columns = (
        Column("REACHED"),
        Column("AT"),
        Column("TOOK", right=True),
        Column("LAST", drop_rank=1),
        Column("AFTER THE FIRST", right=True, drop_rank=2),
    )
    parts: list[Any] = []
    for attempt in attempts:
        rows: list[dict[str, str | Text]] = [
            {
                "REACHED": each.phase.words,
                "AT": format_time(each.at),
                "TOOK": _took(each.seconds) if each is not attempt.reached[0] else "",
                "LAST": printable(each.last or ""),
                "AFTER THE FIRST": _took(each.spread) if each.last else "",
            }
            for each in attempt.reached
        ]
        parts += [Text(printable(timing_title(attempt)), "bold"), make_table(columns, rows, width)]
    return Group(*parts)


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else format_duration(seconds)
