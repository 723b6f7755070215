"""The problems of a spec: what is wrong, where, and what to do. They are raised all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen

MOST_PROBLEMS = 100
"""A longer list would not help, and suggesting a name for each problem takes time."""

_LONGEST_QUOTE = 60


class Mark(Frozen):
    """A place in a file. Lines and columns count from 1; without a line, it is the whole text."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        file = printable(self.file)
        return file if self.line is None else f"{file}:{self.line}:{self.column}"

    def problem(self, message: str, hint: str = "", *, is_certain: bool = False) -> Problem:
        return Problem(self.file, self.line, self.column, message, hint, is_certain)

    def unchecked(self, why: str | Exception) -> Problem:
        """The problem for a check that could not be made, or that failed."""
        if isinstance(why, RecursionError):
            why = "it nests too deeply"
        elif isinstance(why, MemoryError):
            why = "there is not enough memory"
        elif isinstance(why, Exception):
            text = f"{type(why).__name__}: {why}".rstrip(": ")
            why = f"the check has failed ({text}): this is a defect in distrun, please report it"
        return self.problem(f"not checked: {why}")

    def checked(self, check: Callable[[], Iterable[Problem]]) -> list[Problem]:
        """Return the warnings of a check, or the warning that it could not be made."""
        try:
            return list(check())
        except Exception as error:  # noqa: BLE001 - a defect must not keep a job from starting
            return [self.unchecked(error)]


class Problem(Frozen):
    """One thing that is wrong, and what to do about it (`hint`; may be empty).

    `is_certain`: the program fails of it as soon as it starts.
    """

    file: str
    line: int | None
    column: int | None
    message: str
    hint: str = ""
    is_certain: bool = False

    @property
    def mark(self) -> Mark:
        return Mark(self.file, self.line, self.column)

    def __str__(self) -> str:
        return f"{self.mark}: {self.message}" + (f"; {self.hint}" if self.hint else "")


class SpecProblemsError(InvalidSpecError):
    def __init__(
        self, problems: Iterable[Problem], *, left_out: int = 0, hint: str | None = None
    ) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        if left_out:
            lines.append(f"and {left_out} more")
        super().__init__("\n".join(lines), hint=hint)


class Problems:
    """Collects problems while a spec is read.

    Attributes:
        places: where each value is written, by its path, such as `hosts[0].env`.
        keys: where its key is written, if it has one.
        with_unknown: the paths of mappings with unknown keys, which may be misspelt known ones.
        top: the schema of the outermost mapping, which is the first one that is read.
    """

    def __init__(self) -> None:
        self.places: dict[str, Mark] = {}
        self.keys: dict[str, Mark] = {}
        self.with_unknown: set[str] = set()
        self.top: Any = None
        self._found: dict[Problem, None] = {}  # in the order in which they were found, each once
        self._left_out = 0
        self._closed: set[Mark] = set()
        """Where no further problem is added."""

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def full(self) -> bool:
        return len(self._found) >= MOST_PROBLEMS

    def add(
        self, where: Mark | str, message: str, hint: str = "", *, is_only: bool = False
    ) -> None:
        """Add a problem with the value at a place or path.

        `is_only`: what is found at the same place later follows from it.
        """
        mark = self.places[where] if isinstance(where, str) else where
        if is_only:
            self._closed.add(mark)
        elif mark in self._closed:
            return
        problem = mark.problem(message, hint)
        if problem in self._found:  # the same node, reached again through an alias
            return
        if self.full:
            self._left_out += 1
        else:
            self._found[problem] = None

    def add_unknown(self, mark: Mark | str, message: str, name: str, known: Iterable[str]) -> None:
        """Add a problem about an unknown name. Suggests the nearest of `known`."""
        self.add(mark, message, "" if self.full else suggestion(name, known))

    def error(self) -> SpecProblemsError:
        files = list(dict.fromkeys(problem.file for problem in self._found))
        ordered = sorted(
            self._found, key=lambda one: (files.index(one.file), one.line or 0, one.column or 0)
        )
        return SpecProblemsError(ordered, left_out=self._left_out)

    def raise_if_any(self) -> None:
        if self:
            raise self.error()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, or None if none is."""
    from difflib import get_close_matches

    by_folded = {one.casefold(): one for one in known}
    found = get_close_matches(name[:100].casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not in `known`: the nearest name, or all names."""
    names = list(known)
    found = nearest(name, names)
    return f"did you mean {quoted(found)}?" if found else f"known: {', '.join(names) or 'none'}"


def printable(text: str) -> str:
    """`text` on one line. Everything that a terminal might act on is escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def quoted(text: str, longest: int = _LONGEST_QUOTE) -> str:
    """`text` for a message: on one line, in quotes, shortened if it is long."""
    shown = printable(text[:longest])
    return f"'{shown}...'" if len(text) > longest else f"'{shown}'"
