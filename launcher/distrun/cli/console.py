"""What distrun itself says: plain lines on stderr, and text made safe for a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

    from distrun.errors import DistrunError

JSON_VERSION = 1
_PIPE_WIDTH = 100_000


def say(text: str) -> None:
    """One message on stderr. A terminal that is gone is no error."""
    say_lines([f"distrun: {text}"])


def say_lines(lines: list[str], headline: int | None = None) -> None:
    """Lines on stderr. They may hold any file's or task's name, but do nothing to a terminal.

    The line at `headline` is to be seen first: bold, where there is colour.
    """
    safe = list(map(printable, lines))
    if headline is not None and uses_colour(sys.stderr):
        safe[headline] = f"\x1b[1m{safe[headline]}\x1b[0m"
    text = "\n".join(safe)
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is its voice
    except (OSError, ValueError):
        return


def say_error(error: DistrunError) -> None:
    lines = error.message.splitlines() or [""]
    # A place in a file stands at the beginning, where editors look for it.
    if len(lines) == 1 and not re.match(r".*:\d+:\d+: ", lines[0]):
        say(lines[0])
    else:
        say_lines(lines)
    if error.hint:
        say_lines([f"  {line}" for line in error.hint.splitlines()])


def put_json(fields: dict[str, Any]) -> None:
    """The one thing that `--json` prints: a versioned envelope."""
    print(json.dumps({"version": JSON_VERSION, **fields}, indent=2))  # noqa: T201


def put(text: str, indent: int = 0) -> None:
    """A line of a command's result; on a terminal its later rows are indented so far."""
    if indent and sys.stdout.isatty():
        import shutil
        import textwrap

        columns = max(shutil.get_terminal_size().columns, indent + 20)
        text = textwrap.fill(text, columns, subsequent_indent=" " * indent, break_on_hyphens=False)
    print(text)  # noqa: T201


def uses_colour(stream: Any) -> bool:
    """Colour only on a terminal, never with NO_COLOR (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


def rich_console() -> Console:
    """For tables on stdout. What is piped has no width: nothing is folded or left out there."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        highlight=False,
        soft_wrap=False,
        # Whatever FORCE_COLOR says: what reads a pipe wants text.
        force_terminal=is_terminal,
        width=None if is_terminal else _PIPE_WIDTH,
        no_color=not uses_colour(sys.stdout) or None,
    )


def put_view(view: RenderableType) -> None:
    """Print what rich has laid out, without the blanks it fills lines up with."""
    screen = rich_console()
    with screen.capture() as capture:
        screen.print(view, crop=False)
    for line in capture.get().splitlines():
        put(line.rstrip())


def printable(text: str) -> str:
    """Any text on one line: a name may hold newlines and escape sequences."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def count(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names_in_short(names: Iterable[str]) -> str:
    """`worker:0 to worker:63, ps:0`: names of tasks whose numbers follow each other together."""
    runs: list[list[str]] = []
    for name in names:
        role, _, index = name.rpartition(":")
        if runs and runs[-1][-1] == f"{role}:{int(index) - 1}":
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def clipped(text: str, columns: int) -> str:
    """As much of a line as fits; what is printed in two columns counts twice."""
    if text.isascii():
        return text[: max(0, columns)]
    import unicodedata

    left = columns
    for at, each in enumerate(text):
        left -= 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if left < 0:
            return text[:at]
    return text


def clock_time(at: float) -> str:
    """A local time of day, with the date where it is not today's."""
    then, now = time.localtime(at), time.localtime()
    pattern = "%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(pattern, then)


def size(count: float) -> str:
    """Bytes in words: `670 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def span(seconds: float) -> str:
    """How long: `0.4 s`, `12 s`, `3 m 05 s`, `2 h 10 m`, `3 d 4 h`."""
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
