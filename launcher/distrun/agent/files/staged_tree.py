"""The program's files on a host that they have to be sent to: a copy for one job alone.

The launching side sends the list of them. What an earlier job's files had already (see
:mod:`distrun.agent.files.blob_cache`) is copied from there; the rest is asked for. The copy grows
under another name and gets its own once it is whole. A job's copy is its own: nothing changes in it
when newer files are sent for another job.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import re
import shutil
import stat
import time
from typing import Callable, Deque, Dict, Generator, Iterator, List, Optional, Tuple

from distrun.agent.files.blob_cache import Store
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.file_messages import FileData, FileList
from distrun.agent.structs import Struct

_BLOCK = 1 << 20
_SLICE_SECONDS = 0.02
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = b".files"


class RefusedError(Exception):
    """The copy cannot be made."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


class _File(Struct):
    path: bytes
    mode: int
    size: int
    digest: str


class _Arrival(Struct):
    """The file that is coming: where it goes, here and into the store."""

    target: int
    spare: Optional[Tuple[int, bytes]]
    digest: "hashlib._Hash"


class Copy:
    """A copy in the making.

    Args:
        place: where it is to be.
        store: where contents may be found, and are to be kept; None: nowhere.
        beat: called for each file that is removed.
    """

    def __init__(self, place: str, store: Optional[Store], beat: Callable[[], None]) -> None:
        self._place = os.fsencode(place)
        self._top = os.path.join(os.path.dirname(self._place), _UNFINISHED)
        self._store = store
        self._beat = beat
        self._files: List[_File] = []
        self._links: List[Tuple[bytes, bytes]] = []
        self._folders: List[bytes] = []
        self._first: Dict[str, _File] = {}
        """One file for each of the different contents."""
        self._wanted: Deque[int] = collections.deque()
        self._offset = 0
        self._arrival: Optional[_Arrival] = None
        self._work: Optional[Generator[None, None, None]] = None
        self._written: Dict[bytes, Tuple[int, int]] = {}
        """Size and time of each file as it was made."""
        self._is_listed = False
        self.is_whole = False

    @property
    def has_work(self) -> bool:
        """Whether :meth:`work` is to be called, at once."""
        return self._work is not None

    @property
    def wanted(self) -> Optional[Tuple[List[int], int]]:
        """The numbers of the files to be sent, and from where the first; None: not known yet."""
        return (list(self._wanted), self._offset) if self._is_listed else None

    @property
    def digests(self) -> List[str]:
        return list(self._first)

    # The list ------------------------------------------------------------------------------

    def expect(self, part: FileList) -> None:
        """Take a part of the list.

        Raises:
            RefusedError: it names something outside of the copy.
        """
        for path, mode, size, digest in part.files:
            if not _DIGEST.fullmatch(digest):
                raise RefusedError(Cause(Code.DIGEST_INVALID, text=digest))
            self._files.append(_File(_inner(path), int(mode) & 0o777, int(size), digest))
        self._folders += [_inner(path) for path in part.folders]
        self._links += [_inner_link(path, target) for path, target in part.links]
        if part.last:
            self._work = self._look_for_contents()

    def work(self) -> None:
        """Go on for a moment.

        Raises:
            RefusedError: it cannot be made here.
        """
        until = time.monotonic() + _SLICE_SECONDS
        with self._refusing():
            while self._work is not None and time.monotonic() < until:
                # What is done at its end may have begun other work.
                work = self._work
                if next(work, self) is self and self._work is work:
                    self._work = None

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.give_up()
            path, number = self._meant_by(error), error.errno or 0
            raise RefusedError(Cause(Code.FILE_NOT_WRITTEN, path=path, errno=number)) from error
        except RefusedError:
            self.give_up()
            raise

    def _meant_by(self, error: OSError) -> str:
        """The file that could not be made, where it will be; or else the copy."""
        # Of a link, the first name is what it was to lead to.
        for name in (error.filename, error.filename2):
            path = os.fsencode(name) if isinstance(name, (bytes, str)) else b""
            if path.startswith(self._top + b"/"):
                return os.fsdecode(self._place + path[len(self._top) :])
        return os.fsdecode(self._place)

    def _look_for_contents(self) -> Generator[None, None, None]:
        os.mkdir(self._top, 0o700)
        for path in self._folders:
            os.makedirs(os.path.join(self._top, path), mode=0o700, exist_ok=True)
        for number, file in enumerate(self._files):
            if file.digest in self._first:
                continue
            self._first[file.digest] = file
            source = None
            if self._store is not None and file.size:
                source = self._store.open(file.digest, file.size)
            if not file.size:
                self._close(self._create(file), file)
            elif source is None or not (yield from self._copy(source, file)):
                self._wanted.append(number)
            yield
        self._is_listed = True
        if not self._wanted:
            self._work = self._complete()

    def _copy(self, source: int, file: _File) -> Generator[None, None, bool]:
        """Copy contents; returns whether they were what they should be."""
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
            if self._store is not None:
                self._store.remove(file.digest)
        return is_right

    # What comes ----------------------------------------------------------------------------

    def take(self, part: FileData) -> None:
        """Write down a part of the file that is due; any other has come before.

        Raises:
            RefusedError: it cannot be written, or is not what the list says.
        """
        if not self._wanted or (part.number, part.offset) != (self._wanted[0], self._offset):
            return
        file = self._files[part.number]
        with self._refusing():
            if self._arrival is None:
                target = self._create(file)
                spare = None if self._store is None else self._store.begin()
                self._arrival = _Arrival(target, spare, hashlib.sha256())
            _write(self._arrival.target, part.data)
            self._write_spare(part.data)
            self._arrival.digest.update(part.data)
            self._offset += len(part.data)
            if self._offset >= file.size:
                self._end_arrival(file)
                self._wanted.popleft()
                self._offset = 0
                if not self._wanted:
                    self._work = self._complete()

    def _write_spare(self, block: bytes) -> None:
        """To the store, which need not take it."""
        arrival = self._arrival
        if arrival is None or arrival.spare is None or self._store is None:
            return
        try:
            _write(arrival.spare[0], block)
        except OSError:
            os.close(arrival.spare[0])
            self._store.forget(arrival.spare[1])
            self._arrival = arrival._replace(spare=None)

    def _end_arrival(self, file: _File) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is None:
            return
        self._close(arrival.target, file)
        is_right = arrival.digest.hexdigest() == file.digest
        if arrival.spare is not None and self._store is not None:
            os.close(arrival.spare[0])
            if is_right:
                self._store.keep(arrival.spare[1], file.digest)
            else:
                self._store.forget(arrival.spare[1])
        if not is_right:
            raise RefusedError(Cause(Code.FILE_CHANGED, path=os.fsdecode(file.path)))

    # The end -------------------------------------------------------------------------------

    def _complete(self) -> Generator[None, None, None]:
        for file in self._files:
            first = self._first[file.digest]
            if first is file:
                continue
            if file.size:
                source = os.open(os.path.join(self._top, first.path), os.O_RDONLY | os.O_CLOEXEC)
                if not (yield from self._copy(source, file)):
                    raise RefusedError(Cause(Code.DISK_UNRELIABLE))
            else:
                self._close(self._create(file), file)
            yield
        # Links come last: no file is ever written through one.
        for path, _ in self._links:
            os.makedirs(os.path.dirname(os.path.join(self._top, path)), mode=0o700, exist_ok=True)
        for path, target in self._links:
            os.symlink(target, os.path.join(self._top, path))
            yield
        os.rename(self._top, self._place)
        self.is_whole = True

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

    def give_up(self) -> None:
        """Leave nothing of an unfinished copy."""
        self._work = None
        self._wanted.clear()
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            os.close(arrival.target)
            if arrival.spare is not None and self._store is not None:
                os.close(arrival.spare[0])
                self._store.forget(arrival.spare[1])
        for path in self._written:
            self._beat()
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._top, path))
        shutil.rmtree(self._top, ignore_errors=True)

    def remove(self) -> Tuple[int, int]:
        """Remove what was sent; returns how many files, and bytes, tasks have put there."""
        if not self.is_whole:
            self.give_up()
            return 0, 0
        for path, target in self._links:
            self._beat()
            with contextlib.suppress(OSError):
                if os.readlink(os.path.join(self._place, path)) == target:
                    os.unlink(os.path.join(self._place, path))
        for path, written in self._written.items():
            self._beat()
            whole = os.path.join(self._place, path)
            with contextlib.suppress(OSError):
                status = os.lstat(whole)
                if (status.st_size, status.st_mtime_ns) == written:
                    os.unlink(whole)
        return _sweep(self._place, self._beat)


def _sweep(top: bytes, beat: Callable[[], None]) -> Tuple[int, int]:
    """Remove empty folders, and what Python has compiled; returns how much is left."""
    count = size = 0
    for folder, _, names in os.walk(top, topdown=False):
        beat()
        if os.path.basename(folder) == b"__pycache__":
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if b"/__pycache__/" in folder[len(top) :]:
            continue
        for name in names:
            beat()
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
                count += 1
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return count, size


def _inner(path: str) -> bytes:
    """A path of the list; only what lies in the copy is one."""
    raw = path.encode("utf-8", "surrogateescape")
    if b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise RefusedError(Cause(Code.PATH_OUTSIDE_TREE, path=path))
    return raw


def _inner_link(path: str, target: str) -> Tuple[bytes, bytes]:
    place, raw = _inner(path), target.encode("utf-8", "surrogateescape")
    leads_to = os.path.normpath(os.path.join(os.path.dirname(place), raw))
    if not raw or b"\0" in raw or os.path.isabs(raw) or leads_to.split(b"/")[0] == b"..":
        raise RefusedError(Cause(Code.LINK_OUTSIDE_TREE, path=path, name=target))
    return place, raw


def _read(source: int) -> bytes:
    """A block of stored contents; what cannot be read is as good as not there."""
    try:
        return os.read(source, _BLOCK)
    except OSError:
        return b""


def _write(target: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(target, view) :]
