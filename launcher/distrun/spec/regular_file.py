"""Reads files that may be something else: a named pipe or a device must not be waited for."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, BinaryIO

from distrun.agent.linux.regular import data_start, open_regular

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["beginning", "data_start", "open_regular_file", "read_regular_file"]


def open_regular_file(path: str | bytes | Path, *, follow_link: bool = False) -> BinaryIO:
    """Open a file to read it.

    Raises:
        FileNotFoundError: nothing is there, or no regular file.
        OSError: the file cannot be opened.
    """
    try:
        return open(open_regular(path, os.O_RDONLY | (0 if follow_link else os.O_NOFOLLOW)), "rb")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):  # a link, a pipe, no folder
            missing = errno.ENOENT, "is not a regular file", os.fsdecode(path)
            raise FileNotFoundError(*missing) from None
        raise


def beginning(path: str, size: int) -> bytes:
    try:
        with open_regular_file(path, follow_link=True) as file:
            return file.read(size)
    except (OSError, ValueError):
        return b""


def read_regular_file(path: str | bytes, *, largest: int, follow_link: bool = True) -> bytes | None:
    """Return the bytes of a file; None if it is unreadable, larger, or not a regular file."""
    try:
        with open_regular_file(path, follow_link=follow_link) as file:
            if os.fstat(file.fileno()).st_size > largest:
                return None
            content = file.read(largest + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= largest else None
