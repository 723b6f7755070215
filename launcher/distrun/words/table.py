"""Tables on stdout: complete in a pipe, fitted to the width on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from distrun.frozen import Frozen
from distrun.spec.problems import printable

_GAP = 2
"""Blanks between two columns."""

# Of the 256 colours, these have a contrast of about 4:1 on black and on white: yellow is
# unreadable on a light terminal, and grey on many. With only 16 colours, terminals show green,
# red and magenta.
_GOOD, _BAD, _TRANSIENT = "color(28)", "color(161)", "color(163)"
_STYLES = {
    **dict.fromkeys(("ok", "running", "succeeded"), _GOOD),
    **dict.fromkeys(("failed", "lost"), _BAD),
    **dict.fromkeys(("warning", "stopping", "restarting", "exited", "stopped"), _TRANSIENT),
}


class Column(Frozen):
    """A column of a table.

    Attributes:
        title: its heading, and the key of its cells.
        right: align it at the right, as for numbers.
        drop_rank: on a narrow terminal, columns with a lower rank get the room first. A column with
            rank 0 is never dropped.
        least: so many characters of it are reason to drop others; longer cells are folded before.
    """

    title: str
    right: bool = False
    drop_rank: int = 0
    least: int = sys.maxsize


def styled(state: str, suffix: str = "") -> Text:
    """The state of a job, task or check in its colour, followed by `suffix`."""
    return Text(f"{state} {suffix}" if suffix else state, style=_STYLES.get(state, ""))


def make_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, str | Text]], width: int
) -> Table:
    """A table without lines. Empty columns are left out.

    Cells that are still too wide are folded and never cut off, so that names can be copied.
    """
    shown = fitting([each for each in columns if any(row[each.title] for row in rows)], rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,  # numbers are short; names can be folded
        )
    for row in rows:
        cells = (row[column.title] for column in shown)
        table.add_row(*(Text(printable(e)) if isinstance(e, str) else e for e in cells))
    return table


def fitting(
    columns: list[Column], rows: Sequence[Mapping[str, str | Text]], width: int
) -> list[Column]:
    """The columns without those that must be dropped to fit into the width."""
    widths = {
        column.title: max(
            len(column.title),
            *(min(cell_len(printable(str(row[column.title]))), column.least) for row in rows),
        )
        for column in columns
    }
    shown: list[Column] = []
    for rank in sorted({each.drop_rank for each in columns}):
        more = [each for each in columns if each in shown or each.drop_rank == rank]
        if rank == 0 or sum(widths[each.title] + _GAP for each in more) - _GAP <= width:
            shown = more
    return shown
