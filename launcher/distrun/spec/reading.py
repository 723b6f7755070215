"""Files and standard input, read with a bound, and what to say where they cannot be."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from distrun.errors import UsageError
from distrun.spec.problems import Mark, Problems, printable

if TYPE_CHECKING:
    from typing import BinaryIO

STDIN = "-"
STDIN_NAME = "<stdin>"


def read_spec(path: str, shown: str, most: int, problems: Problems) -> bytes | None:
    """The spec's bytes; raises UsageError where there is no such file."""
    if path == STDIN:
        return _bounded(sys.stdin.buffer, most, Mark(shown, 1, 1), problems)
    try:
        return read_file(path, shown, most, problems)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(
            f"{printable(shown)}: there is no such file",
            hint="name a spec; 'distrun init' writes one to begin with",
        ) from None


def read_file(path: str, shown: str, most: int, problems: Problems) -> bytes | None:
    """The file's bytes, or None and a problem; a missing one raises FileNotFoundError."""
    mark = Mark(shown, 1, 1)
    try:
        with open(path, "rb") as file:
            return _bounded(file, most, mark, problems)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except IsADirectoryError:
        problems.add(mark, "this is a folder", "name a file")
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        problems.add(mark, f"cannot be read: {reason}", "check the file and its permissions")
    return None


def _bounded(file: BinaryIO, most: int, mark: Mark, problems: Problems) -> bytes | None:
    content = file.read(most + 1)
    if len(content) > most:
        problems.add(mark, f"is larger than {most // 1024} KiB", "no such file needs to be")
        return None
    return content


def decode(content: bytes, shown: str, problems: Problems) -> str | None:
    """`content` as UTF-8 text, without a byte order mark; or None and a problem."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        problems.add(
            Mark(shown, before.count(b"\n") + 1, column),
            f"the byte 0x{content[error.start]:02x} is not UTF-8",
            "save the file as UTF-8",
        )
        return None
