"""Receives the program's files from the link: one job's copy on a host that they are sent to.

The launching side sends the list of files. Those whose contents are in the cache
(:mod:`distrun.agent.files.blob_cache`) are copied from there; the others are requested. The tree
is built under a temporary name and renamed once it is complete.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Deque, Dict, Generator, List, Optional, Tuple, Union

from distrun.agent.files import staged_tree
from distrun.agent.files.blob_cache import MOST_BYTES, BlobCache
from distrun.agent.linux import private_dir
from distrun.agent.linux.regular import open_regular
from distrun.agent.protocol import Cause, CauseError, Code
from distrun.agent.protocol.file_messages import (
    FileData,
    FileDataReceived,
    FileList,
    FilesPreserved,
    FilesReady,
    FilesRefused,
    FilesRequested,
)
from distrun.agent.structs import Struct

if TYPE_CHECKING:
    from distrun.agent.agent_dir import AgentDir
    from distrun.agent.link import Link

    Work = Generator[None, None, None]

_BLOCK = 1 << 20
_SLICE_SECONDS = 0.02
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _File(Struct):
    path: bytes
    mode: int
    size: int
    digest: str


class FileReceiver:
    """One job's files in the agent's folder.

    Long work is cut into slices (:meth:`work`), or sends heartbeats in between.
    """

    def __init__(self, agent_dir: AgentDir, link: Link, most_cached: int = MOST_BYTES) -> None:
        self._dir = agent_dir
        self._link = link
        self._path = os.fsencode(agent_dir.files_path)
        self._top = os.path.join(os.path.dirname(self._path), os.fsencode(staged_tree.UNFINISHED))
        self._mark = os.path.join(agent_dir.path, staged_tree.MARK)
        cache = agent_dir.cache_path
        self._cache = None if cache is None else BlobCache(os.fsencode(cache), most_cached)
        """The contents of earlier jobs' files. None: there is no place for it."""
        self._files: List[_File] = []
        self._links: List[Tuple[bytes, bytes]] = []
        self._folders: List[bytes] = []
        self._first: Dict[str, _File] = {}
        """For each digest, the first file with these contents."""
        self._missing: Deque[int] = collections.deque()
        """The numbers of the files that must be sent; the first of them is arriving."""
        self._arrival: Optional[int] = None
        self._offset = 0
        self._works: Deque[Work] = collections.deque()
        self._is_listed = self._has_requested = False
        """Whether all missing files are known, and have been requested on this link."""
        self._is_complete = self._has_reported = False

    @property
    def has_work(self) -> bool:
        """Whether :meth:`work` must be called without waiting for anything."""
        return bool(self._works)

    def execute(self, order: Union[FileList, FileData]) -> None:
        if not self._has_reported:
            try:
                if isinstance(order, FileList):
                    self._add_list(order)
                else:
                    self._write(order)
            except (CauseError, OSError) as error:
                self._refuse(error)
        if isinstance(order, FileData):
            self._link.send(FileDataReceived(len(order.data)))
            self._link.send_heartbeat_if_due()

    def work(self) -> None:
        until = time.monotonic() + _SLICE_SECONDS
        try:
            while self._works and time.monotonic() < until:
                if next(self._works[0], self) is self:
                    self._works.popleft()
        except (CauseError, OSError) as error:
            self._refuse(error)
        if self._has_reported:
            return
        if self._is_listed and not self._has_requested and self._link.is_up:
            self._has_requested = True
            self._link.send(FilesRequested(list(self._missing), self._offset))
        if self._is_complete:
            self._has_reported = True
            self._link.report(FilesReady(time.time()))

    def pause(self) -> None:
        """The link is lost: request the missing files again on the next one."""
        self._has_requested = False

    def _refuse(self, error: Union[CauseError, OSError]) -> None:
        if isinstance(error, OSError):
            path, number = self._path_of(error), error.errno or 0
            cause = Cause(Code.FILE_NOT_WRITTEN, path=path, errno=number)
        else:
            cause = error.cause
        self._discard()
        self._has_reported = True
        self._link.report(FilesRefused(cause, time.time()))

    def _path_of(self, error: OSError) -> str:
        """Return the path of the file that could not be written, or that of the tree."""
        # An error of os.symlink has the link's target first, then its path.
        for name in (error.filename, error.filename2):
            path = os.fsencode(name) if isinstance(name, (bytes, str)) else b""
            if path.startswith(self._top + b"/"):
                return os.fsdecode(self._path + path[len(self._top) :])
        return os.fsdecode(self._path)

    # Building the tree ---------------------------------------------------------------------

    def _add_list(self, part: FileList) -> None:
        for path, mode, size, digest in part.files:
            if not _DIGEST.fullmatch(digest):
                raise CauseError(Cause(Code.DIGEST_INVALID, text=digest))
            self._files.append(_File(_checked_path(path), int(mode) & 0o777, int(size), digest))
        self._folders += [_checked_path(path) for path in part.folders]
        self._links += [_checked_link(path, target) for path, target in part.links]
        if part.last:
            self._works.append(self._copy_cached())

    def _copy_cached(self) -> Work:
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
            self._works.append(self._complete())

    def _copy(self, source: int, file: _File) -> Generator[None, None, bool]:
        """Copy contents to a file. Returns whether they have the file's digest."""
        target = self._create(file)
        try:
            is_right = (yield from _copy(source, target)) == file.digest
        finally:
            self._close(target, file)
        if not is_right:
            os.unlink(os.path.join(self._top, file.path))
            if self._cache is not None:
                self._cache.discard(self._cache.path(file.digest))
        return is_right

    def _write(self, part: FileData) -> None:
        """Write the next part of the next missing file. Any other part has arrived before."""
        if not self._missing or (part.number, part.offset) != (self._missing[0], self._offset):
            return
        file = self._files[part.number]
        if self._arrival is None:
            self._arrival = self._create(file)
        _write(self._arrival, part.data)
        self._offset += len(part.data)
        if self._offset >= file.size:
            self._close(self._arrival, file)
            self._arrival, self._offset = None, 0
            self._missing.popleft()
            if file.size > _BLOCK:
                self._works.append(self._keep(file))
            else:
                collections.deque(self._keep(file), maxlen=0)  # at once
            if not self._missing:
                self._works.append(self._complete())

    def _keep(self, file: _File) -> Work:
        """Check a file that has arrived, and copy it to the cache. A failure there does no harm."""
        created = None if self._cache is None else self._cache.create()
        found = ""
        if created is not None and self._cache is not None:
            target, path = created
            try:
                with contextlib.suppress(OSError):
                    found = yield from _copy(self._open(file), target)
            finally:
                os.close(target)
                if found == file.digest:
                    self._cache.add(path, file.digest)
                else:
                    self._cache.discard(path)
        found = found or (yield from _copy(self._open(file)))
        if found != file.digest:
            raise CauseError(Cause(Code.FILE_CHANGED, path=os.fsdecode(file.path)))

    def _complete(self) -> Work:
        for file in self._files:
            first = self._first[file.digest]
            if first is file:
                continue
            if not file.size:
                self._close(self._create(file), file)
            elif not (yield from self._copy(self._open(first), file)):
                raise CauseError(Cause(Code.DISK_UNRELIABLE))
            yield
        # Links come last, so that no file is ever written through one.
        for path, _ in self._links:
            os.makedirs(os.path.dirname(os.path.join(self._top, path)), mode=0o700, exist_ok=True)
        for path, target in self._links:
            os.symlink(target, os.path.join(self._top, path))
            yield
        os.close(open_regular(self._mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        made = os.stat(self._mark).st_mtime_ns
        while os.stat(self._mark).st_mtime_ns == made:  # it must be later than what was sent
            os.utime(self._mark)
            yield
        os.rename(self._top, self._path)
        self._is_complete = True

    def _create(self, file: _File) -> int:
        path = os.path.join(self._top, file.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def _open(self, file: _File) -> int:
        return open_regular(os.path.join(self._top, file.path), os.O_RDONLY)

    def _close(self, target: int, file: _File) -> None:
        os.fchmod(target, file.mode | stat.S_IRUSR | stat.S_IWUSR)
        os.close(target)

    # The end -------------------------------------------------------------------------------

    def _discard(self) -> None:
        self._works.clear()
        self._missing.clear()
        if self._arrival is not None:
            os.close(self._arrival)
            self._arrival = None
        private_dir.remove_tree(os.fsdecode(self._top), ignore_errors=True)

    def close(self) -> None:
        """Remove the files, all but what tasks wrote, and report that."""
        beat = self._link.send_heartbeat_if_due
        if not self._is_complete:
            self._discard()
        else:
            count, size = staged_tree.remove_sent(self._dir.path, beat)
            if count:
                # A pod's disk ends with it.
                path = "" if private_dir.is_alone else self._dir.files_path
                self._link.report(FilesPreserved(path, count, size, time.time()))
        if self._cache is not None:
            self._cache.trim(set(self._first), beat)


def _checked_path(path: str) -> bytes:
    """Return a path of the list as bytes. Raises CauseError if it is outside the tree."""
    raw = path.encode("utf-8", "surrogateescape")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise CauseError(Cause(Code.PATH_OUTSIDE_TREE, path=path))
    return raw


def _checked_link(path: str, target: str) -> Tuple[bytes, bytes]:
    place, raw = _checked_path(path), target.encode("utf-8", "surrogateescape")
    leads_to = os.path.normpath(os.path.join(os.path.dirname(place), raw))
    if not raw or b"\0" in raw or os.path.isabs(raw) or leads_to.split(b"/")[0] == b"..":
        raise CauseError(Cause(Code.LINK_OUTSIDE_TREE, path=path, name=target))
    return place, raw


def _copy(source: int, target: Optional[int] = None) -> Generator[None, None, str]:
    """Read a file to its end, or to what cannot be read, and close it. Returns its SHA-256."""
    import hashlib  # to load it takes a tenth of an agent's start, and most receive no file

    digest = hashlib.sha256()
    with open(source, "rb", 0) as file:
        while True:
            try:
                block = file.read(_BLOCK)
            except OSError:
                break
            if not block:
                break
            digest.update(block)
            if target is not None:
                _write(target, block)
            yield
    return digest.hexdigest()


def _write(target: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(target, view) :]
