"""Folders that nobody but this user, and root, can change: created, checked, and opened.

A folder that another user can change, or whose parents another user owns, can be exchanged for one
with symbolic links: what is then written by its path goes to other files. So distrun writes through
a descriptor of the folder (:func:`path_of`), which no renaming changes.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def is_foreign(status: os.stat_result) -> bool:
    """Whether another user than this one, or root, owns a folder."""
    return status.st_uid not in (0, os.geteuid())


def is_writable_by_others(status: os.stat_result) -> bool:
    return bool(status.st_mode & _OTHERS_WRITE)


def create(path: str) -> None:
    """Create a folder and its missing parents, whatever the umask, with mode 0700.

    Raises OSError if that fails, but not if the folder exists.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent in ("", path):
            raise
        create(parent)
        os.mkdir(path, 0o700)


def open_checked(path: str, parent: Optional[int] = None, *, follow: bool = False) -> int:
    """Open a folder that others cannot change.

    Args:
        path: the folder's.
        parent: a descriptor of the folder from which the path begins.
        follow: whether the path may be a symbolic link.

    Raises:
        PermissionError: another user owns it, or can write to it.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=parent)
    status = os.fstat(descriptor)
    if is_foreign(status) or is_writable_by_others(status):
        os.close(descriptor)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
    return descriptor


def path_of(descriptor: int) -> str:
    """The path of an open folder for this process and its forks. See proc_pid_fd(5)."""
    return "/proc/self/fd/{}".format(descriptor)
