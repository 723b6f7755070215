"""Tables on stdout: whole where they are piped, and fitted to the terminal where they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distrun.cli.console import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table
    from rich.text import Text

_BETWEEN = 2


@dataclass(frozen=True)
class Column:
    """A column and what becomes of it where the terminal is too narrow for all.

    Attributes:
        title: its heading, and the key of its cells.
        right: whether numbers stand in it, which are aligned at the right.
        spare: left out where there is no room, the highest first; 0 stays whatever happens.
    """

    title: str
    right: bool = False
    spare: int = 0


def make_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, str | Text]], width: int
) -> Table:
    """A table without lines. Columns in which nothing stands are left out.

    What stays and is still too wide is folded, never cut off: names are there to be copied.
    """
    from rich.table import Table

    shown = _fitting(
        [each for each in columns if any(row[each.title] for row in rows)], rows, width
    )
    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            # Numbers and states are short; a name gives way.
            no_wrap=column.right,
        )
    for row in rows:
        table.add_row(*(_shown(row[column.title]) for column in shown))
    return table


def _shown(cell: str | Text) -> Text:
    from rich.text import Text

    return Text(printable(cell)) if isinstance(cell, str) else cell


def _fitting(
    columns: list[Column], rows: Sequence[Mapping[str, str | Text]], width: int
) -> list[Column]:
    """As many columns as fit side by side."""
    from rich.cells import cell_len

    widths = {
        column.title: max(
            len(column.title),
            *(cell_len(printable(str(row[column.title]))) for row in rows),
        )
        for column in columns
    }
    while columns and sum(widths[each.title] + _BETWEEN for each in columns) - _BETWEEN > width:
        spare = max(each.spare for each in columns)
        if spare == 0:
            break
        columns = [each for each in columns if each.spare != spare]
    return columns
