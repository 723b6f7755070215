"""The form of a rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrun.verdict.model import Kind
    from distrun.verdict.statement import Statement


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A few texts of the same meaning, and what they mean. One of them is enough.

    Plain texts where they do instead of patterns: they are searched for in many logs, in little
    time.
    """

    kind: Kind
    cause: str
    """What it came to, behind the task's name: `worker:1 ran out of GPU memory`."""
    advice: str = ""
    types: tuple[str, ...] = ()
    """Types of exceptions, with as much of their module as tells them from others."""
    any_of: tuple[str, ...] = ()
    """Texts in what an exception says, in the last line printed, in TensorFlow's log."""
    tensorflows: tuple[str, ...] = ()
    """Texts that count only where TensorFlow says them: in others' mouths they may be chance."""
    frames: tuple[str, ...] = ()
    """Parts of files' names, one of which must be in the traceback; enough if there is no more."""
    forms: tuple[str, ...] = ()
    """Patterns of whole lines, as only certain programs print them before they exit."""
    codes: tuple[int, ...] = ()
    """The exit codes with which alone the forms count; empty for any."""
    all_of: tuple[str, ...] = ()
    """Texts that must be there besides."""
    is_echo: bool = False
    """Whether it tells of another task's end, where there is one."""

    def mark(self, said: Statement, code: int | None) -> tuple[int, str] | None:
        """The line of the statement that fits, and the text of it that does."""
        if said.is_printed:
            return self._form(said) if not self.codes or code in self.codes else None
        if not all(any(each in line for _, line in said.lines) for each in self.all_of):
            return None
        if self.frames:
            frame = _first(said.frames, self.frames)
            if frame is None or not self.any_of:
                return frame
        return self._type(said) or self._text(said)

    def _form(self, said: Statement) -> tuple[int, str] | None:
        if not all(any(each in line for line in said.before) for each in self.all_of):
            return None
        for form in self.forms:
            for index, line in said.lines:
                match = re.match(form, line)
                if match is not None:
                    return index, match[0]
        return None

    def _type(self, said: Statement) -> tuple[int, str] | None:
        index, line = said.lines[0]
        for each in self.types:
            if said.has_type(each):
                return index, each
            name = each.rpartition(".")[2]
            if not said.type and re.search(rf"(?<![\w.]){name}(?!\w)", line):
                return index, name
        return None

    def _text(self, said: Statement) -> tuple[int, str] | None:
        if said.is_tensorflows:
            return _first(said.lines, self.any_of + self.tensorflows)
        return _first(said.lines[:1] if self.is_echo else said.lines, self.any_of)


def _first(lines: Sequence[tuple[int, str]], texts: tuple[str, ...]) -> tuple[int, str] | None:
    for text in texts:
        for index, line in lines:
            if text in line:
                return index, text
    return None
