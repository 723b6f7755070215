"""Where the time of a job went, as `status --timing` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distrun.job.timing import AttemptTiming, Phase
from distrun.spec.problems import printable
from distrun.words.causes import cause_text
from distrun.words.formats import format_count, format_duration, format_time

if TYPE_CHECKING:
    from rich.console import Group


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
