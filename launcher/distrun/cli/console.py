"""What distrun itself says: plain lines on stderr, and text made safe for a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from distrun.errors import DistrunError

JSON_VERSION = 1


def say(text: str) -> None:
    """One message on stderr. A terminal that is gone is no error."""
    try:
        print(f"distrun: {text}", file=sys.stderr, flush=True)  # noqa: T201 - this is its voice
    except (OSError, ValueError):
        return


def say_lines(lines: list[str]) -> None:
    """Lines on stderr as they are."""
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        return


def say_error(error: DistrunError) -> None:
    lines = error.message.splitlines() or [""]
    if len(lines) == 1:
        say(lines[0])
    else:
        say_lines(lines)
    if error.hint:
        say_lines([f"  {line}" for line in error.hint.splitlines()])


def put_json(fields: dict[str, Any]) -> None:
    """The one thing that `--json` prints: a versioned envelope."""
    print(json.dumps({"version": JSON_VERSION, **fields}, indent=2))  # noqa: T201


def put(text: str) -> None:
    """A line of a command's result."""
    print(text)  # noqa: T201


def uses_colour(stream: Any) -> bool:
    """Colour only on a terminal, never with NO_COLOR (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


def rich_console() -> Console:
    """For tables on stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, no_color=not uses_colour(sys.stdout) or None)


def printable(text: str) -> str:
    """Any text on one line: a name may hold newlines and escape sequences."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def clock_time(at: float) -> str:
    """A local time of day, with the date where it is not today's."""
    then, now = time.localtime(at), time.localtime()
    pattern = "%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(pattern, then)


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
