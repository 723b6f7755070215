"""Counts, sizes, times and names as text for people."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable

_MOST_NAMES = 8
_NARROWEST = 20
"""Columns of a row behind its indent."""
_LATEST = 1e11
"""Unix time in seconds: the year 5138."""
_WHOLE = re.compile(
    r"`[^`]*`|'(?:distrun |/)[^']*'(?! -m )"
    r"|(?:(?<=: )|(?<=; )|(?<=\()|(?<=run )|(?<=  )|^)"
    r"(?:distrun (?:logs|ps|status|stacks|events|[a-z]+(?<!s)(?= |$))|kill -|rm -|tar -"
    r"|(?:chmod|conda|iconv|jupyter|sed|sysctl|umount) "
    r"|(?:(?:'[^']*'|\S+) -m|uv) pip )(?:'[^']*'|[^';,)·]|,(?! ))*(?<! )"
    r"|(?<!\S)--?[a-z][\w-]*(?: [A-Z]{2,}\b| \d+\b)"
)
"""What a reader copies: commands, and an option with its value. A row ends within none of them."""
_HANGING = re.compile(r"  [a-z ]{1,16}  +|  +")
_QUOTED = re.compile(r" {4}\S| {4,}\^")
"""Begins a line of a log or of a source, or the caret below it."""
_GLUE, _SECOND_CELL = "\0", "\1"
"""In place of a blank within them, and behind a wide character: `printable` leaves neither."""


def one_line(text: str) -> str:
    return " ".join(text.split())


def format_count(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `2 processes`."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def apart_text(folders: Collection[str]) -> str:
    """Where those of fetched files are that differ between hosts; '' if none do."""
    return f"; those that differ between hosts are in {format_names(folders)}" if folders else ""


def format_used(amount: float | None, form: Callable[[float], str]) -> str:
    """What has been used, as `form` writes it: `unknown` for None, and empty for 0."""
    return "unknown" if amount is None else form(amount) if amount else ""


def format_duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 m 05 s`, `2 h 10 m`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def format_short(value: float) -> str:
    """`0.35`, `4.2`, `150`: with two digits or all before the point, and no exponent."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def age_text(at: float) -> str:
    """`4 s ago`: how long ago a Unix time was."""
    seconds = max(0.0, time.time() - at)
    return f"{int(seconds)} s ago" if seconds < 60 else f"{format_duration(seconds)} ago"


def format_time(at: float) -> str:
    """A Unix time as the local time of day, with the date unless it is today."""
    # The record of an earlier version may have any number.
    then, now = time.localtime(min(max(at, 0.0), _LATEST)), time.localtime()
    pattern = "%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(pattern, then)


def format_names(names: Iterable[str]) -> str:
    """`worker:0 to worker:63, ps:0`: each once, three or more in a row as a range; at most eight.

    How many more there are follows.
    """
    runs = _runs(dict.fromkeys(names), lambda first, last: f"{first} to {last}")
    more = sum(count for _, count in runs[_MOST_NAMES:])
    shown = ", ".join(text for text, _ in runs[:_MOST_NAMES])
    return f"{shown} and {more} more" if more else shown


def format_codes(codes: Iterable[int]) -> str:
    """`1, 137-139`: exit codes in ascending order, three and more in a row as a range."""
    return _in_ranges(map(str, codes), lambda first, last: f"{first}-{last}")


def format_host_names(names: Iterable[str]) -> str:
    """`gpu-[01-16], cpu1`: three or more consecutive hosts as a range, as a spec writes it."""
    return _in_ranges(
        names, lambda first, last: "{}[{}-{}]".format(*_numbered(first), _numbered(last)[1])
    )


def _in_ranges(names: Iterable[str], form: Callable[[str, str], str]) -> str:
    return ", ".join(text for text, _ in _runs(names, form))


def _runs(names: Iterable[str], form: Callable[[str, str], str]) -> list[tuple[str, int]]:
    """Names, three or more in a row as `form` writes the first and the last, each with a count."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _successor(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    texts: list[tuple[str, int]] = []
    for run in runs:
        is_range = len(run) > 2
        texts += [(form(run[0], run[-1]), len(run))] if is_range else [(each, 1) for each in run]
    return texts


def _successor(name: str) -> str | None:
    """`gpu-10` after `gpu-09`; None if the name ends without a number."""
    stem, number = _numbered(name)
    return f"{stem}{int(number) + 1:0{len(number)}}" if number else None


def _numbered(name: str) -> tuple[str, str]:
    stem = name.rstrip("0123456789")
    return stem, name[len(stem) :]


def wrapped(text: str, columns: int, indent: int | None = None) -> str:
    """Return a line in rows of so many columns, all but the first with an indent.

    A row is wider rather than that a word or a command is broken. Without an indent, it is that of
    the line, or below what follows its label; a quoted line stays as it is.
    """
    if clip(text, columns) == text or text.isspace():
        return text
    if indent is None and _QUOTED.match(text):
        return text
    if indent is None:
        hanging = _HANGING.match(text)
        indent = len(hanging[0]) if hanging is not None else 2
    import textwrap

    text = _WHOLE.sub(lambda found: found[0].replace(" ", _GLUE), text)
    text = "".join(each + _SECOND_CELL if _is_wide(each) else each for each in text)
    indent = max(0, min(indent, columns - max(map(len, text.split()))))
    rows = textwrap.fill(
        text,
        max(columns, indent + _NARROWEST),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return rows.replace(_GLUE, " ").replace(_SECOND_CELL, "")


def install_command(python: str, *packages: str) -> str:
    """Return the command that installs packages for a Python. One that uv has made has no pip.

    In a Python of the system, pip refuses to (PEP 668), as it did for distrun, until it is told.
    """
    from importlib.util import find_spec
    from sysconfig import get_path

    words = [shlex.quote(python), "-m pip install"]
    if python == sys.executable:
        if find_spec("pip") is None:
            words = ["uv pip install --python", shlex.quote(python)]
        is_managed = os.path.exists(os.path.join(get_path("stdlib"), "EXTERNALLY-MANAGED"))
        if is_managed and sys.prefix == sys.base_prefix:
            words.append("--break-system-packages")
    return " ".join([*words, *packages])


def clip(text: str, columns: int) -> str:
    """The beginning of a line that fits into so many terminal columns. Wide characters take two."""
    if text.isascii():
        return text[: max(0, columns)]
    left = columns
    for at, each in enumerate(text):
        left -= 2 if _is_wide(each) else 1
        if left < 0:
            return text[:at]
    return text


def _is_wide(character: str) -> bool:
    if character.isascii():
        return False
    from unicodedata import east_asian_width  # 1 MB, which few texts need

    return east_asian_width(character) in "WF"
