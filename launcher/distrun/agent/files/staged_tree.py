"""The staged tree: one job's copy of the program's files on a host that they are sent to.

The launching side sends the list of files. Those whose contents are in the cache
(:mod:`distrun.agent.files.blob_cache`) are copied from there; the others are requested. The tree
is built under a temporary name and renamed once it is complete. No other job uses it, so newer
files that are sent for another job change nothing in it.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import time
from typing import Callable, Deque, Dict, Generator, Iterator, List, Optional, Sequence, Tuple

from distrun.agent.files.blob_cache import BlobCache
from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.causes import CauseError
from distrun.agent.protocol.file_messages import FileData, FileList
from distrun.agent.structs import Struct

_BLOCK = 1 << 20
_SLICE_SECONDS = 0.02
_DIGEST = re.compile(r"[0-9a-f]{64}")
UNFINISHED = ".files"
LIST = "files.json"
"""What was sent. It outlives an agent that is killed, and stands beside the tree."""


class RefusedError(CauseError):
    """The tree cannot be built."""


class _File(Struct):
    path: bytes
    mode: int
    size: int
    digest: str


class _Arrival(Struct):
    """The file that is arriving: where it is written to, in the tree and in the cache."""

    target: int
    cached: Optional[Tuple[int, bytes]]
    digest: "hashlib._Hash"


class StagedTree:
    """A tree that is being built.

    Args:
        path: the tree's path once it is complete.
        cache: contents of earlier jobs; new contents are added to it. None: there is no cache.
        send_heartbeat: called for each file that is removed, because that may take long.
    """

    def __init__(
        self, path: str, cache: Optional[BlobCache], send_heartbeat: Callable[[], None]
    ) -> None:
        self._path = os.fsencode(path)
        self._top = os.path.join(os.path.dirname(self._path), os.fsencode(UNFINISHED))
        self._cache = cache
        self._send_heartbeat = send_heartbeat
        self._files: List[_File] = []
        self._links: List[Tuple[bytes, bytes]] = []
        self._folders: List[bytes] = []
        self._first: Dict[str, _File] = {}
        """For each digest, the first file with these contents."""
        self._missing: Deque[int] = collections.deque()
        self._offset = 0
        self._arrival: Optional[_Arrival] = None
        self._work: Optional[Generator[None, None, None]] = None
        self._written: Dict[bytes, Tuple[int, int]] = {}
        """Size and time of each file as it was written."""
        self._is_listed = False
        self.is_complete = False

    @property
    def has_work(self) -> bool:
        """Whether :meth:`work` must be called without waiting."""
        return self._work is not None

    @property
    def missing(self) -> Optional[Tuple[List[int], int]]:
        """The numbers of the missing files, and the first one's offset; None: not known yet."""
        return (list(self._missing), self._offset) if self._is_listed else None

    @property
    def digests(self) -> List[str]:
        return list(self._first)

    # The list ------------------------------------------------------------------------------

    def add_list(self, part: FileList) -> None:
        """Add a part of the list. Raises RefusedError if it names something outside the tree."""
        for path, mode, size, digest in part.files:
            if not _DIGEST.fullmatch(digest):
                raise RefusedError(Cause(Code.DIGEST_INVALID, text=digest))
            self._files.append(_File(_checked_path(path), int(mode) & 0o777, int(size), digest))
        self._folders += [_checked_path(path) for path in part.folders]
        self._links += [_checked_link(path, target) for path, target in part.links]
        if part.last:
            self._work = self._copy_cached()

    def work(self) -> None:
        """Continue for a short time. Raises RefusedError if the tree cannot be built."""
        until = time.monotonic() + _SLICE_SECONDS
        with self._refusing():
            while self._work is not None and time.monotonic() < until:
                # The end of this work may have started other work.
                work = self._work
                if next(work, self) is self and self._work is work:
                    self._work = None

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            path, number = self._path_of(error), error.errno or 0
            raise RefusedError(Cause(Code.FILE_NOT_WRITTEN, path=path, errno=number)) from error
        except RefusedError:
            self.discard()
            raise

    def _path_of(self, error: OSError) -> str:
        """Return the path of the file that could not be written, or that of the tree."""
        # An error of os.symlink has the link's target first, then its path.
        for name in (error.filename, error.filename2):
            path = os.fsencode(name) if isinstance(name, (bytes, str)) else b""
            if path.startswith(self._top + b"/"):
                return os.fsdecode(self._path + path[len(self._top) :])
        return os.fsdecode(self._path)

    def _copy_cached(self) -> Generator[None, None, None]:
        os.mkdir(self._top, 0o700)
        for path in self._folders:
            os.makedirs(os.path.join(self._top, path), mode=0o700, exist_ok=True)
        for number, file in enumerate(self._files):
            if file.digest in self._first:
                continue
            self._first[file.digest] = file
            source = None
            if self._cache is not None and file.size:
                source = self._cache.open(file.digest, file.size)
            if not file.size:
                self._close(self._create(file), file)
            elif source is None or not (yield from self._copy(source, file)):
                self._missing.append(number)
            yield
        self._is_listed = True
        if not self._missing:
            self._work = self._complete()

    def _copy(self, source: int, file: _File) -> Generator[None, None, bool]:
        """Copy contents to a file. Returns whether they have the file's digest."""
        target = self._create(file)
        digest = hashlib.sha256()
        try:
            while True:
                block = _read(source)
                if not block:
                    break
                _write(target, block)
                digest.update(block)
                yield
        finally:
            os.close(source)
            self._close(target, file)
        is_right = digest.hexdigest() == file.digest
        if not is_right:
            os.unlink(os.path.join(self._top, file.path))
            if self._cache is not None:
                self._cache.remove(file.digest)
        return is_right

    # Arriving files ------------------------------------------------------------------------

    def write(self, part: FileData) -> None:
        """Write the next part of the next missing file. Any other part has arrived before.

        Raises RefusedError if it cannot be written, or the file does not have its digest.
        """
        if not self._missing or (part.number, part.offset) != (self._missing[0], self._offset):
            return
        file = self._files[part.number]
        with self._refusing():
            if self._arrival is None:
                target = self._create(file)
                cached = None if self._cache is None else self._cache.create()
                self._arrival = _Arrival(target, cached, hashlib.sha256())
            _write(self._arrival.target, part.data)
            self._write_cached(part.data)
            self._arrival.digest.update(part.data)
            self._offset += len(part.data)
            if self._offset >= file.size:
                self._end_arrival(file)
                self._missing.popleft()
                self._offset = 0
                if not self._missing:
                    self._work = self._complete()

    def _write_cached(self, block: bytes) -> None:
        """Write to the cache too; a failure there does no harm."""
        arrival = self._arrival
        if arrival is None or arrival.cached is None or self._cache is None:
            return
        try:
            _write(arrival.cached[0], block)
        except OSError:
            os.close(arrival.cached[0])
            self._cache.discard(arrival.cached[1])
            self._arrival = arrival._replace(cached=None)

    def _end_arrival(self, file: _File) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is None:
            return
        self._close(arrival.target, file)
        is_right = arrival.digest.hexdigest() == file.digest
        if arrival.cached is not None and self._cache is not None:
            os.close(arrival.cached[0])
            if is_right:
                self._cache.add(arrival.cached[1], file.digest)
            else:
                self._cache.discard(arrival.cached[1])
        if not is_right:
            raise RefusedError(Cause(Code.FILE_CHANGED, path=os.fsdecode(file.path)))

    # The end -------------------------------------------------------------------------------

    def _complete(self) -> Generator[None, None, None]:
        for file in self._files:
            first = self._first[file.digest]
            if first is file:
                continue
            if file.size:
                source = open_regular(os.path.join(self._top, first.path), os.O_RDONLY)
                if not (yield from self._copy(source, file)):
                    raise RefusedError(Cause(Code.DISK_UNRELIABLE))
            else:
                self._close(self._create(file), file)
            yield
        # Links come last, so that no file is ever written through one.
        for path, _ in self._links:
            os.makedirs(os.path.dirname(os.path.join(self._top, path)), mode=0o700, exist_ok=True)
        for path, target in self._links:
            os.symlink(target, os.path.join(self._top, path))
            yield
        sent = {os.fsdecode(path): written for path, written in self._written.items()}
        links = [(os.fsdecode(path), os.fsdecode(target)) for path, target in self._links]
        descriptor = open_regular(self._list_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with open(descriptor, "w", encoding="ascii") as listed:
            json.dump([sent, links], listed)
        os.rename(self._top, self._path)
        self.is_complete = True

    def _create(self, file: _File) -> int:
        path = os.path.join(self._top, file.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def _close(self, target: int, file: _File) -> None:
        os.fchmod(target, file.mode | stat.S_IRUSR | stat.S_IWUSR)
        status = os.fstat(target)
        self._written[file.path] = (status.st_size, status.st_mtime_ns)
        os.close(target)

    def discard(self) -> None:
        """Remove an unfinished tree."""
        self._work = None
        self._missing.clear()
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            os.close(arrival.target)
            if arrival.cached is not None and self._cache is not None:
                os.close(arrival.cached[0])
                self._cache.discard(arrival.cached[1])
        for path in self._written:
            self._send_heartbeat()
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._top, path))
        shutil.rmtree(self._top, ignore_errors=True)

    def remove(self) -> Tuple[int, int]:
        """Remove what was sent; returns how many files, and bytes, tasks have added."""
        if not self.is_complete:
            self.discard()
            return 0, 0
        return remove_sent(self._path, self._written, self._links, self._send_heartbeat)

    def remove_list(self) -> None:
        """Remove the list of what was sent, once what tasks have added has been preserved."""
        with contextlib.suppress(OSError):
            os.unlink(self._list_path)

    @property
    def _list_path(self) -> bytes:
        return os.path.join(os.path.dirname(self._path), os.fsencode(LIST))


def remove_sent(
    top: bytes,
    files: Dict[bytes, Tuple[int, int]],
    links: Sequence[Tuple[bytes, bytes]],
    send_heartbeat: Callable[[], None],
) -> Tuple[int, int]:
    """Remove these files, with size and time each, and links from a tree unless tasks changed them.

    A folder that a task has replaced by a link is not followed. Returns how many files, and bytes,
    remain.
    """
    if os.path.islink(top):
        return 1, 0
    real = os.path.realpath(top)

    def is_inside(path: bytes) -> bool:
        folder = os.path.dirname(os.path.join(real, path))
        return os.path.realpath(folder) == os.path.normpath(folder)

    for path, target in links:
        send_heartbeat()
        with contextlib.suppress(OSError):
            if os.readlink(os.path.join(top, path)) == target and is_inside(path):
                os.unlink(os.path.join(top, path))
    for path, written in files.items():
        send_heartbeat()
        absolute = os.path.join(top, path)
        with contextlib.suppress(OSError):
            status = os.lstat(absolute)
            if (status.st_size, status.st_mtime_ns) == written and is_inside(path):
                os.unlink(absolute)
    return count_written(top, send_heartbeat)


def count_written(top: bytes, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    """Remove empty folders and Python's caches; returns the number and size of other files."""
    try:
        return _count_written(top, send_heartbeat)
    except RecursionError:
        return 1, 0  # folders that are so deep are kept as they are


def _count_written(top: bytes, send_heartbeat: Callable[[], None]) -> Tuple[int, int]:
    count = size = 0
    for folder, _, names in os.walk(top, topdown=False):
        send_heartbeat()
        if os.path.basename(folder) == b"__pycache__":
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if b"/__pycache__/" in folder[len(top) :]:
            continue
        for name in names:
            send_heartbeat()
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
                count += 1
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return count, size


def _checked_path(path: str) -> bytes:
    """Return a path of the list as bytes. Raises RefusedError if it is outside the tree."""
    raw = path.encode("utf-8", "surrogateescape")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise RefusedError(Cause(Code.PATH_OUTSIDE_TREE, path=path))
    return raw


def _checked_link(path: str, target: str) -> Tuple[bytes, bytes]:
    place, raw = _checked_path(path), target.encode("utf-8", "surrogateescape")
    leads_to = os.path.normpath(os.path.join(os.path.dirname(place), raw))
    if not raw or b"\0" in raw or os.path.isabs(raw) or leads_to.split(b"/")[0] == b"..":
        raise RefusedError(Cause(Code.LINK_OUTSIDE_TREE, path=path, name=target))
    return place, raw


def _read(source: int) -> bytes:
    """Read a block of cached contents. Contents that cannot be read count as missing."""
    try:
        return os.read(source, _BLOCK)
    except OSError:
        return b""


def _write(target: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(target, view) :]
