"""Opens files that may have become something else: nothing waits for a named pipe or a device."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import BinaryIO, Dict, Iterator, List, Union

LARGEST_SCRIPT = 100_000_000
"""Bytes. A larger file is not a script: reading a sparse one would take hours."""


def content(path: str) -> bytes:
    """What a file of the kernel says; nothing if it cannot be read, or its process has ended."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def lines(path: str) -> List[str]:
    """The lines of a file of the kernel; none if it cannot be read."""
    return content(path).decode("utf-8", "replace").splitlines()


def numbers(path: str) -> Dict[str, int]:
    """The first number of each line of a file of the kernel, by the name before it."""
    rows = (line.split() for line in lines(path))
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def read_end(path: str, size: int) -> bytes:
    """The last bytes of a regular file; nothing if it cannot be read."""
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""


def open_regular(path: Union[str, bytes, "os.PathLike[str]"], flags: int, mode: int = 0o600) -> int:
    """A descriptor of a regular file; the flags are those of os.open.

    Raises OSError: it cannot be opened; ENXIO if it is a named pipe, a socket or a device.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), os.fspath(path))
    os.set_blocking(descriptor, True)  # a task inherits it
    return descriptor


def open_to_append(path: Union[str, "os.PathLike[str]"]) -> BinaryIO:
    """Open a file to append to, which is created if it does not exist. Raises OSError, as above."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return open(open_regular(path, flags), "ab", 0)


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def data_start(descriptor: int, offset: int = 0) -> int:
    """The first byte of a file, from `offset` on, that is not in a hole (`logs.max_size`)."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:  # there is none, or the file system knows no holes
        return os.fstat(descriptor).st_size if error.errno == errno.ENXIO else offset
