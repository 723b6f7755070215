"""Which files `.gitignore` files exclude, as git reads them (gitignore(5), and git's wildmatch.c).

The library `pathspec` does not fit: it matches whole paths, so that a pattern such as `!*/` also
applies to everything below a folder. With `*`, `!*/`, `!*.py`, for example, it excludes files that
git includes. A test compares this module with git itself.
"""

from __future__ import annotations

import os
import re

from distrun.frozen import Frozen

_NAME = b".gitignore"
_NEVER = (b".git", b"__pycache__")
"""Never sent: git's history, and what this machine's Python has compiled."""
_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9", b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z", b"print": rb"\x20-\x7e", b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\f\v", b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip


class Pattern(Frozen):
    """One line of a file."""

    expression: re.Pattern[bytes]
    is_exclusion: bool
    only_folders: bool
    only_name: bool
    """Whether it matches the last part of a path, in any folder."""

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether it matches this entry itself. `path` is relative to the folder of the file."""
        if self.only_folders and not is_folder:
            return False
        subject = path.rpartition(b"/")[2] if self.only_name else path
        return self.expression.fullmatch(subject) is not None


class IgnoreRules(Frozen):
    """The rules for the entries of one folder: its own patterns, then those of the folders above.

    `levels` are (folder, patterns), the deepest folder first. The folders are absolute.
    """

    levels: tuple[tuple[bytes, tuple[Pattern, ...]], ...] = ()

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
        """The rules for the entries of `folder`, to which these rules apply."""
        try:
            with open(os.path.join(folder, _NAME), "rb") as file:
                text = file.read()
        except OSError:
            return self  # usually there is none; git, too, ignores a file that it cannot read
        return IgnoreRules(((folder, _read_patterns(text)), *self.levels))

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


def _read_patterns(text: bytes) -> tuple[Pattern, ...]:
    """The patterns of a file, the last one first: it takes precedence."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
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
        expression = re.compile(_expression(glob), re.DOTALL)
    except (_InvalidError, re.error):
        return None  # git ignores invalid patterns, too
    return Pattern(expression, is_exclusion, only_folders, only_name) if glob else None


def _strip_trailing_blanks(line: bytes) -> bytes:
    """Remove trailing blanks, except one after a backslash."""
    kept = line.rstrip(b" ")
    escaped = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if escaped % 2 and kept != line else kept


class _InvalidError(Exception):
    """The pattern is invalid. It matches nothing."""


def _expression(glob: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(glob):
        each = glob[at : at + 1]
        if each == b"*":
            part, at = _stars(glob, at)
        elif each == b"?":
            part, at = b"[^/]", at + 1
        elif each == b"[":
            part, at = _bracket(glob, at)
        elif each == b"\\":
            if at + 1 == len(glob):
                raise _InvalidError
            part, at = re.escape(glob[at + 1 : at + 2]), at + 2
        else:
            part, at = re.escape(each), at + 1
        parts.append(part)
    return b"".join(parts)


def _stars(glob: bytes, at: int) -> tuple[bytes, int]:
    """One star matches within a folder. Two stars that are a whole part match any folders."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    # git compares the text before the first wildcard separately, and starts matching after it.
    begins_part = glob[at - 1 : at] == b"/" or not re.search(rb"[*?\[\\]", glob[:at])
    if end - at == 1 or not begins_part:
        return b"[^/]*", end
    if end == len(glob):
        return b".*", end
    if glob[end : end + 1] == b"/":
        return b"(?:.*/)?", end + 1
    return (b".*" if glob[end : end + 2] == b"\\/" else b"[^/]*"), end


def _bracket(glob: bytes, at: int) -> tuple[bytes, int]:
    """`[a-z]`, `[!a]`, `[[:digit:]_]`. It never matches a slash."""
    at += 1
    is_negated = glob[at : at + 1] in (b"!", b"^")
    at += is_negated
    members: list[bytes] = []
    is_first = True
    while is_first or glob[at : at + 1] != b"]":
        is_first = False
        if at >= len(glob):
            raise _InvalidError
        if glob[at : at + 2] == b"[:" and (end := glob.find(b":]", at + 2)) >= 0:
            if glob[at + 2 : end] not in _CLASSES:
                raise _InvalidError
            members.append(_CLASSES[glob[at + 2 : end]])
            at = end + 2
            continue
        low, at = _member(glob, at)
        members.append(re.escape(low))
        if glob[at : at + 1] == b"-" and glob[at + 1 : at + 2] not in (b"]", b""):
            high, at = _member(glob, at + 1)
            if low <= high:
                members.append(re.escape(low) + b"-" + re.escape(high))
    return b"(?!/)[" + (b"^" if is_negated else b"") + b"".join(members) + b"]", at + 1


def _member(glob: bytes, at: int) -> tuple[bytes, int]:
    if glob[at : at + 1] == b"\\":
        at += 1
    if at >= len(glob):
        raise _InvalidError
    return glob[at : at + 1], at + 1
