"""Names, numbers and sizes in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 8


def some(names: Iterable[str]) -> str:
    """The first of them, each once, and how many more there are."""
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MOST
    return ", ".join(distinct[:_MOST]) + (f" and {more} more" if more > 0 else "")


def count(number: int, noun: str) -> str:
    """`1 port`, `2 ports`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: float) -> str:
    """Bytes: `670 MB`."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
