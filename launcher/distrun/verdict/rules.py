"""The rules: what a task prints when it fails, and what that means. Tables, tried in order.

A rule is matched against the excerpts of a log that may say why the task ended: the exception and
its causes, the errors in TensorFlow's log, the last lines that the program printed. The first rule
of :data:`RULES` that matches is taken. A rule has a code; its words and the advice are in
:mod:`distrun.words.causes`. The rules themselves are rows of rules.txt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distrun.agent.protocol.causes import Code
from distrun.frozen import Frozen
from distrun.tables import read_rows
from distrun.verdict.model import Kind
from distrun.verdict.old_names import KERAS_2, SUCCESSORS, TENSORFLOW_1, missing_name


class Excerpt(Frozen, kw_only=True):
    """Lines of a log that belong together, with their indices: an exception's message, or others.

    Attributes:
        types: the exception's type with its module, and that of the exception that it wraps.
        frames: the lines of its traceback that name files.
        before: lines above these that a pattern may require.
        source: the line of code in its deepest frame; empty: not known.
        is_tensorflows: whether TensorFlow wrote it.
        is_printed: whether these are just the last lines that the program printed. Only lines that
            match one of a rule's `line_patterns` count among them.
    """

    lines: tuple[tuple[int, str], ...]
    types: tuple[str, ...] = ()
    frames: tuple[tuple[int, str], ...] = ()
    before: tuple[str, ...] = ()
    source: str = ""
    is_tensorflows: bool = False
    is_printed: bool = False


class Rule(Frozen):
    """Several texts with the same meaning; one of them is enough.

    Plain texts are preferred to patterns: they are searched for in many logs, in little time.
    """

    kind: Kind
    code: Code
    types: tuple[str, ...] = ()
    """Types of exceptions, with as much of their module as distinguishes them."""
    any_of: tuple[str, ...] = ()
    """Texts in an exception's message, or in TensorFlow's log."""
    tensorflows: tuple[str, ...] = ()
    """Texts that count only if TensorFlow writes them: elsewhere they may be chance."""
    frames: tuple[str, ...] = ()
    """Parts of file names, one of which must be in the traceback; enough alone without `any_of`."""
    line_patterns: tuple[str, ...] = ()
    """Patterns of whole lines that only certain programs print before they exit."""
    exit_codes: tuple[int, ...] = ()
    """The exit codes for which `line_patterns` count; empty for any."""
    all_of: tuple[str, ...] = ()
    """Texts that must all be there as well."""
    patterns: tuple[str, ...] = ()
    """Patterns searched for in the line that says what is wrong, or in the last line printed.

    They must take linear time: between two texts, the number of characters is limited."""
    source: str = ""
    """A pattern of the line of code that raised the exception, if that line is known."""
    missing: frozenset[str] = frozenset()
    """Names that a module lacks, or names of modules that lack everything in them."""
    is_echo: bool = False
    """Whether it follows from another task's end, if another task ended."""

    def match(self, excerpt: Excerpt, exit_code: int | None) -> tuple[int, str] | None:
        """Return the index of the line that matches, and the text in it that does."""
        if excerpt.is_printed:
            counts = not self.exit_codes or exit_code in self.exit_codes
            return self._match_printed(excerpt) if counts else None
        if not all(any(each in line for _, line in excerpt.lines) for each in self.all_of):
            return None
        if self.source and excerpt.source and not re.search(self.source, excerpt.source):
            return None
        if self.frames:
            if _find_first(excerpt.frames, self.frames) is None:
                return None
            if not self.any_of:
                return excerpt.lines[0]
        return self._match_type(excerpt) or self._match_text(excerpt) or self._match_line(excerpt)

    def _match_printed(self, excerpt: Excerpt) -> tuple[int, str] | None:
        if not all(any(each in line for line in excerpt.before) for each in self.all_of):
            return None
        matched = (
            (at, re.match(form, line)) for form in self.line_patterns for at, line in excerpt.lines
        )
        return next(((index, found[0]) for index, found in matched if found is not None), None)

    def _match_type(self, excerpt: Excerpt) -> tuple[int, str] | None:
        index, line = excerpt.lines[0]
        for each in self.types:
            # A name with dots includes its module.
            if any(f".{of}".endswith(f".{each}") for of in excerpt.types):
                return index, each
            name = each.rpartition(".")[2]
            if not excerpt.types and re.search(rf"(?<![\w.]){name}(?!\w)", line):
                return index, name
        return None

    def _match_text(self, excerpt: Excerpt) -> tuple[int, str] | None:
        if excerpt.is_tensorflows:
            return _find_first(excerpt.lines, self.any_of + self.tensorflows)
        return _find_first(excerpt.lines[:1] if self.is_echo else excerpt.lines, self.any_of)

    def _match_line(self, excerpt: Excerpt) -> tuple[int, str] | None:
        index, line = excerpt.lines[0][0], excerpt.lines[0][1].strip()
        if self.missing:
            parts = missing_name(line).split(".")
            if any(".".join(parts[: n + 1]) in self.missing for n in range(len(parts))):
                return index, parts[-1]
        found = next(filter(None, (re.search(each, line) for each in self.patterns)), None)
        return None if found is None else (index, found[0])


def _find_first(lines: Sequence[tuple[int, str]], texts: tuple[str, ...]) -> tuple[int, str] | None:
    return next(((index, text) for text in texts for index, line in lines if text in line), None)


_NAMES = {"tensorflow_1": TENSORFLOW_1, "keras_2": KERAS_2}
_OTHERS: dict[str, Callable[[list[str]], Any]] = {
    "exit_codes": lambda texts: tuple(map(int, texts)),
    "source": "".join,
    "missing": lambda texts: frozenset().union(*map(_NAMES.__getitem__, texts)),
    "is_echo": lambda _: True,
}
"""How fields of a rule are read that are not just texts."""


def _read() -> Iterator[Rule]:
    """Yield the rules of rules.txt, whose head explains the rows."""
    parts = {"{SUCCESSORS}": "|".join(SUCCESSORS)}
    found: list[tuple[Kind, Code, dict[str, list[str]]]] = []
    for row in filter(None, read_rows(__spec__, "rules.txt")):
        first, _, rest = row.strip().partition(" ")
        text = rest.removeprefix('"').removesuffix('"')
        for name, part in parts.items():
            text = text.replace(name, part)
        if first.isupper():
            parts[f"{{{first}}}"] = text
        elif row.startswith(" "):
            found[-1][2].setdefault(first, []).append(text)
        else:
            found.append((Kind(first), Code(rest), {}))
    for kind, code, fields in found:
        read = {name: _OTHERS.get(name, tuple)(texts) for name, texts in fields.items()}
        yield Rule(kind, code, **read)


RULES = tuple(_read())
"""All rules, in the order in which they are tried."""
