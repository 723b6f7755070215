"""A folder that receives files from other hosts: each is written beside its place, then moved.

Nothing is written outside it: no link below it is followed. A part of a file that has arrived is
kept under a name that identifies the file, so that a later call continues it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator

_PART = ".distrun-part"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
RESERVE = 64 << 20
"""Bytes of the disk that are left free."""


class ReceivedTree:
    """The folder. It is created with the first file. Raises OSError in all methods."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._interrupted: dict[str, list[str]] = {}
        """By folder, the parts that earlier calls left: a folder with many files is read once."""

    @property
    def room(self) -> int:
        place = os.path.abspath(self.path)
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        status = os.statvfs(place)
        return max(0, status.f_bavail * status.f_frsize - RESERVE)

    def find(self, path: str) -> os.stat_result | None:
        """Return the status of what is at a path below; None: nothing is."""
        try:
            with self._parent(path, creates=False) as (folder, name):
                return os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _parent(self, path: str, *, creates: bool) -> Iterator[tuple[int, str]]:
        """Give a descriptor of the folder that a path is in, and its name there."""
        if creates:
            os.makedirs(self.path, exist_ok=True)
        *folders, name = path.split("/")
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for each in folders:
                if creates:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(each, dir_fd=descriptor)
                below = os.open(each, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)

    def open_part(self, path: str, source: str, size: int, changed: int, mode: int) -> Part:
        """Return the part of a file that has arrived, whose whole has this size and change (ns).

        As with `cp`, others may do with it what they may do with its source, less the umask.
        """
        key = hashlib.sha256(f"{source}\0{path}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        fresh = f".{key}-{size}-{changed}{_PART}"
        with self._parent(path, creates=True) as (folder, name):
            above = os.path.dirname(path)
            if above not in self._interrupted:
                names = os.listdir(folder)
                self._interrupted[above] = [each for each in names if each.endswith(_PART)]
            for each in self._interrupted[above]:
                if each.startswith(f".{key}-") and each != fresh:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(each, dir_fd=folder)  # of the file as it was before
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(fresh, flags, 0o600 | mode & 0o777, dir_fd=folder)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                error = OSError(errno.ENXIO, os.strerror(errno.ENXIO), fresh)
            elif not _lock(descriptor):
                error = OSError(errno.EBUSY, "another fetch is copying it", fresh)
            else:
                return Part(os.dup(folder), descriptor, fresh, name, size, changed)
            os.close(descriptor)
            raise error


def _lock(descriptor: int) -> bool:
    """Lock a file; returns False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # its file system has no locks
    return True


class Part:
    """A file that arrives."""

    def __init__(
        self, folder: int, descriptor: int, fresh: str, name: str, size: int, changed: int
    ) -> None:
        self._folder, self._descriptor = folder, descriptor
        self._fresh, self._name = fresh, name
        self._size, self._changed = size, changed
        self.received = os.fstat(descriptor).st_size
        """Up to where it has arrived."""

    def write(self, offset: int, data: bytes) -> None:
        """Write what follows; between it and what was there may be zeros."""
        if not self.received <= offset <= offset + len(data) <= self._size:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO), self._name)
        view, at = memoryview(data), offset
        while view:
            count = os.pwrite(self._descriptor, view, at)
            view, at = view[count:], at + count
        self.received = at

    def finish(self) -> None:
        os.ftruncate(self._descriptor, self._size)
        os.utime(self._descriptor, ns=(self._changed, self._changed))
        os.replace(self._fresh, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self.close()

    def discard(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # another fetch has finished it
            os.unlink(self._fresh, dir_fd=self._folder)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._folder)
            self._descriptor = -1
