"""Reads files that may be something else: a named pipe or a device must not be waited for."""

from __future__ import annotations

import os
import stat


def read_regular_file(path: str | bytes, *, largest: int, follow_link: bool = True) -> bytes | None:
    """Return the bytes of a file; None if it cannot be read, is no regular file, or is larger."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # Opening a named pipe would wait for its writer.
        descriptor = os.open(path, flags if follow_link else flags | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(largest + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if len(content) <= largest else None
