"""A content-addressed cache: files that earlier jobs received need not be sent again.

Many agents may use one cache at the same time, also from several hosts that share a home folder:
a blob appears complete, under its SHA-256, or not at all. A blob that cannot be stored is sent
again for the next job.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable, Collection, List, Optional, Tuple

from distrun.agent.linux.regular import open_regular

MOST_BYTES = 1000 * 1000 * 1000
"""The limit for the cache, without the blobs that the last job used."""
_UNUSED_SECONDS = 30 * 86400.0
_UNFINISHED = b".part-"
_UNFINISHED_SECONDS = 86400.0


class BlobCache:
    """The blobs in one folder. A digest is 64 hexadecimal digits."""

    def __init__(self, folder: bytes, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def open(self, digest: str, size: int) -> Optional[int]:
        """A descriptor to read a blob of that size; None if it is not in the cache."""
        path = self.path(digest)
        try:
            descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        if os.fstat(descriptor).st_size == size:
            with contextlib.suppress(OSError):
                os.utime(path)  # used just now: the last to be removed
            return descriptor
        os.close(descriptor)
        return None

    def has(self, digest: str, size: int) -> bool:
        found = self.open(digest, size)
        if found is not None:
            os.close(found)
        return found is not None

    def create(self) -> Optional[Tuple[int, bytes]]:
        """A new file to write a blob to, and its path; None if none can be created."""
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            path = os.path.join(self._folder, _UNFINISHED + os.urandom(8).hex().encode())
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path
        except OSError:
            return None

    def store(self, digest: str, blob: bytes) -> bytes:
        """Add a blob unless it is in the cache. Returns its path; empty if it cannot be stored."""
        if self.has(digest, len(blob)):
            return self.path(digest)
        created = self.create()
        if created is None:
            return b""
        descriptor, path = created
        try:
            with open(descriptor, "wb") as file:
                file.write(blob)
        except OSError:
            self.discard(path)
            return b""
        self.add(path, digest)
        return self.path(digest)

    def add(self, path: bytes, digest: str) -> None:
        """Add a file of :meth:`create`, once it is written and closed, under its digest."""
        place = self.path(digest)
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            os.rename(path, place)
        except OSError:
            self.discard(path)

    def discard(self, path: bytes) -> None:
        """Remove a file of :meth:`create`, or one of the cache."""
        with contextlib.suppress(OSError):
            os.unlink(path)

    def trim(self, used: Collection[str], send_heartbeat: Callable[[], None]) -> None:
        """Remove blobs that nobody used for a long time, and the oldest ones over the limit.

        Those `used` by the last job stay. It may take long: each file is a reason to
        `send_heartbeat`.
        """
        now = time.time()
        kept: List[Tuple[float, int, bytes]] = []
        files = ((each[0], name) for each in os.walk(self._folder) for name in each[2])
        for folder, name in files:
            send_heartbeat()
            path, is_part = os.path.join(folder, name), name.startswith(_UNFINISHED)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if status.st_mtime < now - (_UNFINISHED_SECONDS if is_part else _UNUSED_SECONDS):
                    self.discard(path)
                elif not is_part and name.decode("ascii", "replace") not in used:
                    kept.append((status.st_mtime, status.st_size, path))
        left = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if left <= self._most_bytes:
                break
            send_heartbeat()
            self.discard(path)
            left -= size

    def path(self, digest: str) -> bytes:
        """Where a blob is, if it is in the cache."""
        name = digest.encode("ascii")
        return os.path.join(self._folder, name[:2], name)
