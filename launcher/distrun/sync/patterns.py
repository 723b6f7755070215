"""The patterns of one `.gitignore` file, as git reads them (gitignore(5), and git's wildmatch.c).

Not by way of `pathspec`, the library for it: that answers for whole paths, so that a pattern
such as `!*/` speaks for all that is below a folder as well. Asked for one entry after the other
it leaves out what git keeps, with `*`, `!*/`, `!*.py` for one. A test compares this module with
git itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\f\v",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


@dataclass(frozen=True)
class Pattern:
    """One line: what it matches, and what becomes of that."""

    expression: re.Pattern[bytes]
    leaves_out: bool
    only_folders: bool
    only_name: bool
    """Whether it is about the last part of a path, wherever that is."""

    def matches(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether it is about this entry itself; `path` is relative to the patterns' folder."""
        if self.only_folders and not is_folder:
            return False
        subject = path.rpartition(b"/")[2] if self.only_name else path
        return self.expression.fullmatch(subject) is not None


def read(text: bytes) -> tuple[Pattern, ...]:
    """The patterns of a file, the last first: that one decides."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = [_pattern(line.removesuffix(b"\r")) for line in lines]
    return tuple(pattern for pattern in reversed(found) if pattern is not None)


def _pattern(line: bytes) -> Pattern | None:
    if line.startswith(b"#"):
        return None
    glob = _without_trailing_blanks(line)
    leaves_out = not glob.startswith(b"!")
    glob = glob if leaves_out else glob[1:]
    only_folders = glob.endswith(b"/")
    glob = glob.removesuffix(b"/")
    only_name = b"/" not in glob
    glob = glob.removeprefix(b"/")
    try:
        expression = re.compile(_expression(glob), re.DOTALL)
    except (_InvalidError, re.error):
        return None  # git, too, passes over what is no pattern
    return Pattern(expression, leaves_out, only_folders, only_name) if glob else None


def _without_trailing_blanks(line: bytes) -> bytes:
    """A blank at the end counts only behind a backslash."""
    kept = line.rstrip(b" ")
    escaped = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if escaped % 2 and kept != line else kept


class _InvalidError(Exception):
    """A pattern that matches nothing."""


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
    """One star stays within a folder; two, where they stand for whole parts, do not."""
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    # git compares what comes before the first wildcard by itself, and begins behind it.
    begins_part = glob[at - 1 : at] == b"/" or not re.search(rb"[*?\[\\]", glob[:at])
    if end - at == 1 or not begins_part:
        return b"[^/]*", end
    if end == len(glob):
        return b".*", end
    if glob[end : end + 1] == b"/":
        return b"(?:.*/)?", end + 1
    return (b".*" if glob[end : end + 2] == b"\\/" else b"[^/]*"), end


def _bracket(glob: bytes, at: int) -> tuple[bytes, int]:
    """`[a-z]`, `[!a]`, `[[:digit:]_]`; what it matches is never a slash."""
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
