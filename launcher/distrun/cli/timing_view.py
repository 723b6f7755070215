"""Where the time of a job went, as `status --timing` shows it, and as JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distrun.job import events, record
from distrun.job.timing import AttemptTiming, Phase, Timing
from distrun.spec.problems import printable
from distrun.words.causes import cause_text
from distrun.words.formats import format_count, format_duration, format_time

if TYPE_CHECKING:
    from rich.console import Group

    from distrun.job.folder import JobFolder


def job_timing(folder: JobFolder) -> list[AttemptTiming]:
    """Return the attempts of a job, with the times of their first outputs."""
    try:
        history = record.read(str(folder.events_file))
    except FileNotFoundError:
        return []
    return Timing(history, first_outputs(folder, history), time.time()).attempts


def first_outputs(
    folder: JobFolder, history: Sequence[events.Event]
) -> dict[tuple[str, int], float]:
    from distrun.logs import TaskLog
    from distrun.logs.first_output import first_output

    started: dict[tuple[str, int], tuple[float, int]] = {}
    ended: dict[tuple[str, int], float] = {}
    for event in history:
        if isinstance(event, events.TaskStarted) and event.log_start is not None:
            started[event.task, event.attempt] = event.at, event.log_start
        elif isinstance(event, events.TaskEnded):
            ended[event.task, event.attempt] = event.at
    found: dict[tuple[str, int], float] = {}
    for (task, attempt), (at, begin) in started.items():
        log = TaskLog(task, str(folder.log_of(task)), str(folder.index_of(task)))
        with contextlib.suppress(OSError, ValueError):  # of a name that no task can have
            printed = first_output(log, begin, at, ended.get((task, attempt), time.time()))
            if printed is not None:
                found[task, attempt] = printed
    return found


def timing_json(attempt: AttemptTiming) -> dict[str, Any]:
    """Return an attempt as `status --json` prints it."""
    return {
        "number": attempt.number,
        "tasks": list(attempt.tasks),
        "cause": None if attempt.cause is None else cause_text(attempt.cause),
        "cause_code": None if attempt.cause is None else attempt.cause.to_json(),
        "resumed": attempt.resumed,
        "phases": [
            {
                "phase": each.phase.value.replace(" ", "_"),
                "at": each.at,
                "seconds": each.seconds,
                "last": each.last or None,
                "spread_seconds": each.spread,
            }
            for each in attempt.reached
        ],
    }


def timing_view(attempts: Sequence[AttemptTiming], width: int) -> Group:
    """Return the attempts as text of so many columns: a table for each."""
    from rich.console import Group
    from rich.text import Text

    from distrun.cli.table import Column, make_table

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
                "REACHED": each.phase.value,
                "AT": format_time(each.at),
                "TOOK": _took(each.seconds) if each is not attempt.reached[0] else "",
                "LAST": printable(each.last),
                "AFTER THE FIRST": _took(each.spread) if each.last else "",
            }
            for each in attempt.reached
        ]
        parts += [Text(printable(timing_title(attempt)), "bold"), make_table(columns, rows, width)]
    return Group(*parts)


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else format_duration(seconds)


def timing_title(attempt: AttemptTiming) -> str:
    what = format_count(len(attempt.tasks), "task")
    if attempt.resumed:
        return f"resumed: {what}"
    if attempt.cause is None:
        return f"launched: {what}"
    return f"restarted after {cause_text(attempt.cause).partition(chr(10))[0]}: {what}"


def first_times(attempts: Sequence[AttemptTiming]) -> list[str]:
    """Return how long it took until all tasks had printed, and had done a step, at first."""
    words = []
    for phase in (Phase.FIRST_OUTPUT, Phase.FIRST_STEP):
        for attempt in attempts:
            begin, at = attempt.at(Phase.ACCEPTED), attempt.at(phase)
            if begin is not None and at is not None:
                words.append(f"{phase.value} after {format_duration(max(0.0, at - begin))}")
                break
    return words
