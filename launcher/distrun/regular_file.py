"""Opens files that a task may have replaced, for example with a FIFO."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read it; never wait, as opening a FIFO would.

    Raises:
        FileNotFoundError: nothing is there, or a link, FIFO, device, socket or folder.
        OSError: the file cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _missing(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _missing(path)
    return open(descriptor, "rb")


def _missing(path: str | Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "is not a regular file", os.fspath(path))
