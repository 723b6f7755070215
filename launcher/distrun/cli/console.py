"""Prints results on stdout and messages on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distrun.errors import DistrunError, HostError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


ITEMS = "\0items"
"""Stands for a list that is printed element by element, see :func:`print_json`."""
_PIPE_WIDTH = 100_000
_DUMB_TERMINALS = (None, "", "dumb", "unknown")
_DEFAULT_COLUMNS = 80


def print_message(text: str) -> None:
    """Print one message on stderr, with the prefix `distrun: `."""
    print_lines([f"distrun: {text}"])


def print_lines(lines: list[str], bold: int | None = None) -> None:
    """Print lines on stderr. Control characters in them are escaped; a terminal wraps them.

    The line at index `bold` is printed in bold on a terminal.
    """
    from distrun.spec.problems import printable

    safe = list(map(printable, lines))
    if can_redraw(sys.stderr):
        from distrun.words.formats import wrapped

        width = columns_of(sys.stderr)
        safe = [wrapped(line, width) for line in safe]
    if bold is not None and uses_colour(sys.stderr):
        safe[bold] = f"\x1b[1m{safe[bold]}\x1b[0m"
    print("\n".join(safe), file=sys.stderr, flush=True)  # noqa: T201 - the place where it is allowed


def confirm(question: str) -> bool:
    """Ask a question on stderr. Only `y` and `yes` confirm; the end of stdin does not."""
    sys.stdout.flush()  # what the question is about
    print(f"distrun: {question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # noqa: T201
    return answer.strip().lower() in ("y", "yes")


def print_error(error: DistrunError) -> None:
    """Print an error and its hint on stderr."""
    message, hint = error.message, error.hint
    if error.cause is not None:
        from distrun.words.causes import cause_advice, cause_text

        message, hint = cause_text(error.cause), cause_advice(error.cause)
    lines = message.splitlines() or [""]
    # Editors look for file:line:column at the beginning of a line, so it gets no prefix.
    if len(lines) == 1 and not re.match(r".*:\d+:\d+: ", lines[0]):
        print_message(lines[0])
    else:
        print_lines(lines)
    if hint:
        print_lines([f"  {line}" for line in hint.splitlines()])


def print_json(fields: dict[str, Any], items: Iterable[Any] = ()) -> None:
    """Print one versioned object, the only thing that a command with `--json` prints.

    Args:
        fields: of the object.
        items: the list in place of ITEMS in a field of a field. They are made and printed one
            after the other, because together they may not fit into memory.
    """
    from distrun.codec import JSON_VERSION

    text = json.dumps({"version": JSON_VERSION, **fields}, indent=2)
    before, mark, after = text.partition(json.dumps(ITEMS))
    print(before, end="[" if mark else "")  # noqa: T201
    for number, item in enumerate(items):
        shown = "\n" + json.dumps(item, indent=2)
        print("," if number else "", shown.replace("\n", "\n      "), sep="", end="")  # noqa: T201
    print("\n    ]" if mark else "", after, sep="")  # noqa: T201


def print_text(text: str, indent: int = 0) -> None:
    """Print a line of a command's result. A terminal wraps it with this indent."""
    if indent and sys.stdout.isatty():
        from distrun.words.formats import wrapped

        text = wrapped(text, columns_of(sys.stdout), indent)
    print(text)  # noqa: T201


def print_renderable(renderable: RenderableType) -> None:
    """Print what rich has laid out, without the blanks that rich adds at the ends of lines."""
    screen = rich_console()
    with screen.capture() as capture:
        screen.print(renderable, crop=False)
    for line in capture.get().splitlines():
        print_text(line.rstrip())


def rich_console() -> Console:
    """A rich console on stdout. In a pipe it is so wide that nothing is wrapped or left out."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        highlight=False,
        soft_wrap=False,
        # Programs that read a pipe need plain text, so FORCE_COLOR is ignored.
        force_terminal=is_terminal,
        color_system="auto" if can_redraw(sys.stdout) else None,
        width=None if is_terminal else _PIPE_WIDTH,
        no_color=not uses_colour(sys.stdout) or None,
    )


def columns_of(stream: Any) -> int:
    """The terminal's width now. COLUMNS has its width when the shell started."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    except OSError:  # the terminal is gone
        return _DEFAULT_COLUMNS


def can_redraw(stream: Any) -> bool:
    """Whether lines on a stream can be redrawn: only on a terminal that is not dumb."""
    return bool(stream.isatty()) and os.environ.get("TERM") not in _DUMB_TERMINALS


def uses_colour(stream: Any) -> bool:
    """Whether to use colour: not on a dumb terminal, nor with NO_COLOR (https://no-color.org)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def install_command(*packages: str) -> str:
    """Return the command that installs packages for the Python that runs distrun."""
    from distrun.words import formats

    return formats.install_command(sys.executable, *packages)


def require(what: str, *packages: str) -> None:
    """Raise HostError if the Python that runs distrun lacks packages that this needs."""
    import importlib.util

    if lacking := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise HostError(
            f"{what} needs {' and '.join(lacking)}, which {sys.executable} does not have",
            hint=install_command(*lacking),
        )
