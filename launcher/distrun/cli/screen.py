"""The launching terminal: tasks' output scrolling above one live line at the bottom."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from distrun.cli.console import span, uses_colour

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from distrun.lifecycle import JobState
    from distrun.session import Output

_CLEAR = b"\r\x1b[2K"


class Screen:
    """Writes blocks of whole lines; keeps the live line below them where there is a terminal.

    Without a terminal (a pipe, a file, TERM=dumb) there is no live line, and bytes pass as they
    are.
    """

    def __init__(self, output: Output, stream: TextIO) -> None:
        self._output = output
        self.is_live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._bold = uses_colour(stream)
        self._shown = b""
        self._text = ""

    def write(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self._erase()
            self._output.write([block])
        self._draw()

    def show(self, text: str) -> None:
        """Have the live line say this; empty for none."""
        if self.is_live and text != self._text:
            self._text = text
            self._draw()

    def clear(self) -> None:
        """Take the live line away, so that something else can be written."""
        self._erase()

    def _erase(self) -> None:
        if self._shown:
            self._output.write([_CLEAR])
            self._shown = b""

    def _draw(self) -> None:
        columns = shutil.get_terminal_size().columns
        text = self._text[: max(0, columns - 1)]
        line = text.encode("utf-8", "replace")
        if self._bold and line:
            line = b"\x1b[1m" + line + b"\x1b[0m"
        if line != self._shown:
            self._output.write([_CLEAR + line if self._shown else line])
            self._shown = line


def live_text(state: JobState, progress: dict[str, dict[str, str]], seconds: float) -> str:
    """What the live line says: tasks up, progress, elapsed time."""
    if not state.tasks:
        return f"preparing the hosts  {span(seconds)}" if seconds >= 1 else ""
    up = sum(task.phase.value == "running" for task in state.tasks.values())
    parts = [f"{up}/{len(state.tasks)} tasks up" if not state.outcome else "stopping"]
    told = next((progress[name] for name in state.tasks if name in progress), {})
    parts += progress_words(told)
    return "  ".join([*parts, span(seconds)])


def progress_words(values: dict[str, str]) -> list[str]:
    """A task's progress in words, in a fixed order; what is unknown is left out."""
    words = [
        f"{label} {values[key]}"
        for key, label in (("EPOCH", "epoch"), ("STEP", "step"), ("LOSS", "loss"))
        if key in values
    ]
    with contextlib.suppress(KeyError, ValueError):
        words.append(f"{float(values['EXAMPLES_PER_SEC']):,.0f}/s")
    return words
