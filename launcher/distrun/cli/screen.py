"""The launching terminal: tasks' output scrolling above one live line at the bottom."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from distrun.cli.console import clipped, span, uses_colour
from distrun.cli.progress import progress_words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from distrun.lifecycle import JobState
    from distrun.session import Output

_USUAL_COLUMNS = 80
_ERASE = b"\r\x1b[J"
_BOLD, _PLAIN = b"\x1b[1m", b"\x1b[0m"


class Screen:
    """Writes blocks of whole lines; keeps the live line below them where there is a terminal.

    The cursor rests at the live line's beginning. A terminal that becomes narrower folds the
    line into several rows, and all of them are still behind the cursor, to be erased together.

    Without a terminal (a pipe, a file, TERM=dumb) there is no live line, and bytes pass as they
    are.
    """

    def __init__(self, output: Output, stream: TextIO) -> None:
        self._output = output
        self._stream = stream
        self.is_live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._bold = uses_colour(stream)
        self._shown = b""
        self._text = ""

    def write(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self.clear()
            self._output.write([block])
        self._draw()

    def show(self, text: str) -> None:
        """Have the live line say this; empty for none."""
        if self.is_live:
            self._text = text
            self._draw()

    def clear(self) -> None:
        """Take the live line away, so that something else can be written."""
        if self._shown:
            self._output.write([_ERASE])
            self._shown = b""

    def _draw(self) -> None:
        text = clipped(self._text, _columns(self._stream) - 1)
        line = text.rstrip().encode(errors="replace")
        if line == self._shown:
            return
        self.clear()
        if line:
            self._output.write([_BOLD + line + _PLAIN + b"\r" if self._bold else line + b"\r"])
            self._shown = line


def _columns(stream: TextIO) -> int:
    """The terminal's width now. COLUMNS would say how wide it was when the shell started."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except OSError:  # it has hung up
        return _USUAL_COLUMNS


def live_text(
    state: JobState,
    progress: dict[str, dict[str, str]],
    seconds: float,
    before: str,
) -> str:
    """What the live line says: tasks up, progress, elapsed time; before all that, `before`."""
    if not state.tasks:
        doing = "stopping" if state.outcome else before
        return f"{doing}  {span(seconds)}" if seconds >= 1 else ""
    up = sum(task.phase.value == "running" for task in state.tasks.values())
    parts = ["stopping" if state.outcome else _restarting(state)]
    parts.append(f"{up}/{len(state.tasks)} tasks up")
    told = next((progress[name] for name in state.tasks if name in progress), {})
    parts += progress_words(told, rate_of=" examples")
    return "  ".join([*filter(None, parts), span(seconds)])


def _restarting(state: JobState) -> str:
    """`restarting in 4 s`, while something waits for that."""
    if not state.restarts:
        return ""
    wait = min(restart.due_at for restart in state.restarts.values()) - time.time()
    return f"restarting in {span(wait)}" if wait > 0 else "restarting"
