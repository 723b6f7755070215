"""Folders that nobody but this user, and root, can change: created, checked, and opened.

A folder that another user can change, or whose parents another user owns, can be exchanged for one
with symbolic links: what is then written by its path goes to other files. So distrun writes through
a descriptor of the folder (:func:`path_of`), which no renaming changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from typing import Optional

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
is_alone = False
"""Whether no other user has processes here: in a pod, where volumes are open to everybody."""
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def state_folder() -> str:
    """The folder of distrun in the user's state folder, see the XDG Base Directory Specification.

    A relative XDG_STATE_HOME is invalid there, and ignored. Empty: the user has neither that nor a
    home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(_home(), ".local", "state")
    return os.path.join(state, "distrun") if os.path.isabs(state) else ""


def _home() -> str:
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            return pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:  # as in a container that runs as any number
            return ""
    return home


def is_foreign(status: os.stat_result) -> bool:
    """Whether another user than this one, or root, owns a folder."""
    return status.st_uid not in (0, os.geteuid())


def is_writable_by_others(status: os.stat_result) -> bool:
    return bool(status.st_mode & _OTHERS_WRITE)


def changeable_by_others(path: str) -> Optional[str]:
    """Return the first folder or link of an absolute path that another user could exchange.

    None if there is none. All parents count, up to the user's home: whoever can exchange that has
    more than this path, and OpenSSH's StrictModes ends there, too (sshd_config(5)). A folder that
    is sticky, such as /tmp, or writable only for the user's own group may be above the path. What
    does not exist is not checked.
    """
    if is_alone:
        return None
    try:
        status: Optional[os.stat_result] = os.lstat(path)
    except OSError:
        status = None
    parent = os.path.dirname(path)
    found = None if parent == path else changeable_by_others(parent)
    if status is None or (found and not _is_home(status)):
        return found
    # The owner of / is root, whatever number a user namespace gives it.
    if is_foreign(status) and status.st_uid != os.stat("/").st_uid:
        return path
    if stat.S_ISLNK(status.st_mode):
        target = os.path.join(parent, os.readlink(path))
        return changeable_by_others(target) if os.path.exists(path) else None
    is_open = is_writable_by_others(status) and not status.st_mode & stat.S_ISVTX
    return path if is_open and not _is_own_groups(path, status) else None


def _is_home(status: os.stat_result) -> bool:
    try:
        return os.path.samestat(status, os.stat(pwd.getpwuid(os.geteuid()).pw_dir))
    except (KeyError, OSError):
        return False


def _is_own_groups(path: str, status: os.stat_result) -> bool:
    """Whether only the group can write that has the user's name and no other members.

    Some systems give each user such a group, and have 002 as umask.
    """
    import grp

    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(status.st_gid)
        has_list = "system.posix_acl_access" in os.listxattr(path)
    except (KeyError, OSError):
        return False
    is_own = group.gr_name == name and {name}.issuperset(group.gr_mem)
    return is_own and not has_list and not status.st_mode & stat.S_IWOTH


def create(path: str) -> None:
    """Create a folder, if it does not exist, and its parents, with mode 0700. Raises OSError."""
    before = os.umask(0o077)
    try:
        os.makedirs(path, exist_ok=True)
    finally:
        os.umask(before)


def open_checked(path: str, parent: Optional[int] = None, *, follow: bool = False) -> int:
    """Open a folder that others cannot change. `parent`: a descriptor of the folder above it.

    Raises PermissionError if another user owns it, or can write to it, and OSError.
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


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """Remove a folder and everything in it. Tasks may have made folders of any depth in it.

    Raises OSError, as shutil.rmtree does.
    """
    import shutil  # most agents do not need it

    for is_last in (False, True):
        try:
            shutil.rmtree(path, ignore_errors)
            if is_last or not os.path.lexists(path):
                return
        except RecursionError:
            pass
        except OSError as error:
            if is_last or error.errno not in (errno.EMFILE, errno.ENAMETOOLONG):
                raise
        _flatten(path)


def _flatten(top: str) -> None:
    """Move all folders in a tree to its top, so that none is deep."""
    waiting = [top]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for each in [each for each in entries if each.is_dir(follow_symlinks=False)]:
                place = os.path.join(top, os.urandom(8).hex())
                os.rename(each.path, place)
                waiting.append(place)
