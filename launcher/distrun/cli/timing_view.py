"""Where the time of a job went, as `status --timing` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distrun.job.timing import AttemptTiming
from distrun.spec.problems import printable
from distrun.words.formats import format_duration, format_time
from distrun.words.timing import timing_title

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
