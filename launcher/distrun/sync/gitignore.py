"""Which files `.gitignore` files exclude, as git reads them (gitignore(5), and git's wildmatch.c).

The library `pathspec` does not fit: it matches whole paths, so that a pattern such as `!*/` also
applies to everything below a folder. With `*`, `!*/`, `!*.py`, for example, it excludes files that
git includes. A test compares this module with git itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Sequence
from enum import Enum

from distrun.errors import InvalidSpecError
from distrun.frozen import Frozen
from distrun.regular_file import read_regular_file
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes

_NAME = b".gitignore"
_MOST_BYTES = 1 << 18
"""Of all the files whose patterns apply to an entry. Each pattern takes memory and time."""
_LONGEST_LINE = 4096
"""Bytes of a pattern: no path is longer."""
_NEVER = (b".git", b"__pycache__")
"""Never sent: git's history, and what this machine's Python has compiled."""
_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9", b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z", b"print": rb"\x20-\x7e", b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\f\v", b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip


_Token = tuple[frozenset[int], "Times"]
"""The bytes that it matches, and how often."""
_ALL = frozenset(range(256))
_NO_SLASH = _ALL - frozenset(b"/")


class Times(Enum):
    """How often a token matches a byte."""

    ONCE = "once"
    ANY = "any"
    ANY_WITH_NEXT = "any with next"
    """Any number followed by the next token; or both match nothing."""


class Glob:
    """A pattern as tokens. It matches in time linear in the length of the path.

    A regular expression with several wildcards would try all combinations of what they match. Such
    a pattern is a nondeterministic automaton here, whose states are the bits of a number. State n:
    the first n tokens have matched.
    """

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._expression: re.Pattern[bytes] | None = None
        """For a pattern with at most one wildcard: this is faster, and linear as well."""
        if sum(times is not Times.ONCE for _, times in tokens) <= 1:
            self._expression = re.compile(_expression(tokens), re.DOTALL)
            return
        # A group that may be left out has a state of its own: only its beginning can skip it.
        begin = (frozenset[int](), Times.ANY_WITH_NEXT)
        tokens = [
            state
            for members, times in tokens
            for state in (
                [begin, (members, Times.ANY)]
                if times is Times.ANY_WITH_NEXT
                else [(members, times)]
            )
        ]
        self._accepted = 1 << len(tokens)
        self._advances = [0] * 256
        """For each byte: the states whose token matches this byte once."""
        self._loops = [0] * 256
        """For each byte: the states whose token matches this byte and more."""
        self._skips = self._group_skips = 0
        """The states whose token may match nothing, and those in which a group begins."""
        states: dict[tuple[frozenset[int], bool], int] = {}
        for number, (members, times) in enumerate(tokens):
            key = (members, times is Times.ONCE)
            states[key] = states.get(key, 0) | 1 << number
            self._skips |= (times is not Times.ONCE) << number
            self._group_skips |= (times is Times.ANY_WITH_NEXT) << number
        for (members, is_once), numbers in states.items():
            table = self._advances if is_once else self._loops
            for byte in members:
                table[byte] |= numbers
        self._first = self._skip(1)

    def matches(self, text: bytes) -> bool:
        """Whether it matches the whole text."""
        if self._expression is not None:
            return self._expression.fullmatch(text) is not None
        states = self._first
        for byte in text:
            states = (states & self._advances[byte]) << 1 | states & self._loops[byte]
            if not states:
                return False
            states = self._skip(states)
        return bool(states & self._accepted)

    def _skip(self, states: int) -> int:
        """Add the states that are reached without another byte."""
        fresh = states
        while fresh := fresh & self._skips:
            fresh = (fresh << 1 | (fresh & self._group_skips) << 3) & ~states
            states |= fresh
        return states


def _expression(tokens: Sequence[_Token]) -> bytes:
    parts = [_byte_expression(members) for members, _ in tokens]
    for number, (_, times) in enumerate(tokens):
        if times is Times.ANY:
            parts[number] += b"*"
        elif times is Times.ANY_WITH_NEXT:
            parts[number] = b"(?:" + parts[number] + b"*"
            parts[number + 1] += b")?"
    return b"".join(parts)


def _byte_expression(members: frozenset[int]) -> bytes:
    if members in (_ALL, _NO_SLASH):
        return b"." if members == _ALL else b"[^/]"
    if not members:
        return b"(?!)"
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(members)) + b"]"


class Pattern(Frozen):
    """One line of a file."""

    glob: Glob
    is_exclusion: bool
    only_folders: bool
    only_name: bool
    """Whether it matches the last part of a path, in any folder."""

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether it matches this entry itself. `path` is relative to the folder of the file."""
        if self.only_folders and not is_folder:
            return False
        subject = path.rpartition(b"/")[2] if self.only_name else path
        return self.glob.matches(subject)


class IgnoreRules(Frozen):
    """The rules for the entries of one folder: its own patterns, then those of the folders above.

    `levels` are (folder, patterns), the deepest folder first. The folders are absolute.
    """

    levels: tuple[tuple[bytes, tuple[Pattern, ...]], ...] = ()
    size: int = 0
    """The bytes of the files that were read."""

    @classmethod
    def for_folder(cls, folder: bytes) -> IgnoreRules:
        """The rules for the entries of a folder that the user selected.

        Rules of the folders above apply only if they do not exclude the folder itself: the user
        wants it, even if the repository ignores it.
        """
        rules = cls()
        for above in [*_folders_above(folder), folder]:
            if rules.excludes(above, is_folder=True):
                return cls().within(folder)
            rules = rules.within(above)
        return rules

    def within(self, folder: bytes) -> IgnoreRules:
        """The rules for the entries of `folder`, to which these rules apply.

        Raises:
            InvalidSpecError: the files with the patterns are too large.
        """
        path = os.path.join(folder, _NAME)
        most = _MOST_BYTES - self.size
        text = read_regular_file(path, largest=most, follow_link=False)
        if text is None:
            _refuse_large(path, most)
            return self  # usually there is none; git, too, ignores a file that it cannot read
        patterns = _read_patterns(text, path)
        return IgnoreRules(((folder, patterns), *self.levels), self.size + len(text))

    def excludes(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether this entry, and everything in it, is not sent."""
        if os.path.basename(path) in _NEVER:
            return True
        for folder, lines in self.levels:
            inside = path[len(folder.rstrip(b"/")) + 1 :]
            for line in lines:
                if line.matches(inside, is_folder=is_folder):
                    return line.is_exclusion
        return False


def _refuse_large(path: bytes, most: int) -> None:
    """Raise InvalidSpecError if a file was not read because it has more than `most` bytes."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size > most:
            raise InvalidSpecError(
                f"program.sync: {printable(os.fsdecode(path))} is too large: the .gitignore files "
                f"for a folder and those above it may have {format_bytes(_MOST_BYTES)} together",
                hint="shorten it, or write sync: off where the hosts see the same files",
            )


def _folders_above(folder: bytes) -> list[bytes]:
    """The folders from the repository's top to the folder's parent; none outside a repository."""
    above: list[bytes] = []
    here = folder
    while not os.path.lexists(os.path.join(here, b".git")):
        parent = os.path.dirname(here)
        if parent == here:
            return []
        above.append(parent)
        here = parent
    return above[::-1]


def _read_patterns(text: bytes, path: bytes) -> tuple[Pattern, ...]:
    """The patterns of a file, the last one first: it takes precedence.

    Raises:
        InvalidSpecError: a pattern is longer than any path.
    """
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST_LINE and not line.startswith(b"#"):
            raise InvalidSpecError(
                f"program.sync: {printable(os.fsdecode(path))}:{number}: the pattern has "
                f"{format_bytes(len(line))}, and no path has more than {_LONGEST_LINE:,} bytes",
                hint="correct the file, or write sync: off where the hosts see the same files",
            )
    found = [_pattern(line.removesuffix(b"\r")) for line in lines]
    return tuple(pattern for pattern in reversed(found) if pattern is not None)


def _pattern(line: bytes) -> Pattern | None:
    if line.startswith(b"#"):
        return None
    glob = _strip_trailing_blanks(line)
    is_exclusion = not glob.startswith(b"!")
    glob = glob if is_exclusion else glob[1:]
    only_folders = glob.endswith(b"/")
    glob = glob.removesuffix(b"/")
    only_name = b"/" not in glob
    glob = glob.removeprefix(b"/")
    try:
        tokens = _tokens(glob)
    except _InvalidError:
        return None  # git ignores invalid patterns, too
    return Pattern(Glob(tokens), is_exclusion, only_folders, only_name) if glob else None


def _strip_trailing_blanks(line: bytes) -> bytes:
    """Remove trailing blanks, except one after a backslash."""
    kept = line.rstrip(b" ")
    escaped = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if escaped % 2 and kept != line else kept


class _InvalidError(Exception):
    """The pattern is invalid. It matches nothing."""


def _tokens(glob: bytes) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(glob):
        each = glob[at : at + 1]
        if each == b"*":
            more, at = _stars(glob, at)
            if len(more) == 1 or more != tokens[-2:]:  # `**/**/` means `**/`
                tokens += more
            continue
        if each == b"?":
            members, at = _NO_SLASH, at + 1
        elif each == b"[":
            members, at = _bracket(glob, at)
        else:
            text, at = _member(glob, at)
            members = frozenset(text)
        tokens.append((members, Times.ONCE))
    return tokens


def _stars(glob: bytes, at: int) -> tuple[list[_Token], int]:
    """One star matches within a folder. Two stars that are a whole part match any folders."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    # git compares the text before the first wildcard separately, and starts matching after it.
    begins_part = glob[at - 1 : at] == b"/" or not re.search(rb"[*?\[\\]", glob[:at])
    within_folder: list[_Token] = [(_NO_SLASH, Times.ANY)]
    if end - at == 1 or not begins_part:
        return within_folder, end
    if end == len(glob):
        return [(_ALL, Times.ANY)], end
    if glob[end : end + 1] == b"/":
        return [(_ALL, Times.ANY_WITH_NEXT), (frozenset(b"/"), Times.ONCE)], end + 1
    return ([(_ALL, Times.ANY)] if glob[end : end + 2] == b"\\/" else within_folder), end


def _bracket(glob: bytes, at: int) -> tuple[frozenset[int], int]:
    """`[a-z]`, `[!a]`, `[[:digit:]_]`. It never matches a slash."""
    at += 1
    is_negated = glob[at : at + 1] in (b"!", b"^")
    at += is_negated
    members: set[int] = set()
    is_first = True
    while is_first or glob[at : at + 1] != b"]":
        is_first = False
        if at >= len(glob):
            raise _InvalidError
        if glob[at : at + 2] == b"[:" and (end := glob.find(b":]", at + 2)) >= 0:
            if glob[at + 2 : end] not in _CLASSES:
                raise _InvalidError
            members.update(_class_members(glob[at + 2 : end]))
            at = end + 2
            continue
        low, at = _member(glob, at)
        members.update(low)
        if glob[at : at + 1] == b"-" and glob[at + 1 : at + 2] not in (b"]", b""):
            high, at = _member(glob, at + 1)
            members.update(range(low[0], high[0] + 1))
    return (_NO_SLASH - members if is_negated else _NO_SLASH & members), at + 1


@functools.cache
def _class_members(name: bytes) -> frozenset[int]:
    expression = re.compile(b"[" + _CLASSES[name] + b"]")
    return frozenset(byte for byte in range(256) if expression.match(bytes([byte])))


def _member(glob: bytes, at: int) -> tuple[bytes, int]:
    if glob[at : at + 1] == b"\\":
        at += 1
    if at >= len(glob):
        raise _InvalidError
    return glob[at : at + 1], at + 1
