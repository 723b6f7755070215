"""Reads input files and standard input up to a size limit. Failures become problems."""

from __future__ import annotations

import errno
import os
import stat
import sys

from distrun.errors import UsageError
from distrun.spec.problems import Mark, Problems, nearest, printable, quoted
from distrun.spec.yamlnodes import MAX_BYTES

STDIN = "-"
STDIN_NAME = "<stdin>"
_BEGIN = "name a spec; 'distrun init' writes one to begin with"
DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Names of what a shell has opened, e.g. for `<(command)`: this may be a pipe."""


def read_spec(path: str, shown: str, problems: Problems, begin: str = _BEGIN) -> bytes | None:
    """The spec's bytes, or None after adding a problem. Raises UsageError if it does not exist."""
    try:
        return read_file(path, shown, problems)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        from distrun.spec.resources import bundled_jobs

        if shown in bundled_jobs():
            begin = f"to run the bundled job: distrun run {shown}"
        message = f"{printable(shown)}: there is no such file"
        raise UsageError(message, hint=_like_named(path, shown) or begin) from None


def _like_named(path: str, shown: str) -> str:
    """A hint with a YAML file beside a missing one that has a similar name, or ''."""
    folder, name = os.path.split(path)
    try:
        files = [each for each in sorted(os.listdir(folder)) if each.endswith((".yaml", ".yml"))]
    except (OSError, ValueError):
        return ""
    if name in files:
        return "it is a link that leads to no file"
    stem = os.path.splitext(name)[0]
    stems = {os.path.splitext(each)[0]: each for each in reversed(files)}
    near = stems.get(name) or stems.get(nearest(stem, stems) or "")
    return f"did you mean {quoted(os.path.join(os.path.dirname(shown), near))}?" if near else ""


def read_file(path: str, shown: str, problems: Problems) -> bytes | None:
    """The file's bytes, or None after adding a problem. `-` is standard input.

    Raises FileNotFoundError or NotADirectoryError if there is no such file.
    """
    mark = Mark(shown, 1, 1)
    try:
        content = _read(path, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except IsADirectoryError:
        problems.add(mark, "this is a folder", "name a file")
    except (OSError, AttributeError) as error:  # AttributeError: standard input is closed
        reason = error.strerror if isinstance(error, OSError) else "it is closed"
        problems.add(mark, f"cannot be read: {reason}", "check the file and its permissions")
    else:
        if len(content) <= MAX_BYTES:
            return content
        problems.add(mark, f"is larger than {MAX_BYTES // 1024} KiB", "no such file needs to be")
    return None


def _read(path: str, count: int) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read(count)
    if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(DESCRIPTORS):
        raise OSError(errno.EINVAL, "it is a named pipe, which may have no writer")
    with open(path, "rb") as file:
        return file.read(count)


def decode(content: bytes, shown: str, problems: Problems) -> str | None:
    """`content` as UTF-8 text without a byte order mark, or None after adding a problem."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8"
        hint = "save the file as UTF-8"
        problems.add(Mark(shown, before.count(b"\n") + 1, column), message, hint)
        return None
