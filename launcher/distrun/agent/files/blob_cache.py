"""Contents of files that came with earlier jobs, by their SHA-256: they need not come again.

Many agents may use one store at once, also from several hosts that share a home folder: contents
appear whole, under their name, or not at all, and nobody relies on finding any. What cannot be
stored is merely sent again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Callable, Collection, Iterator, List, Optional, Tuple

_MOST_BYTES = 1000 * 1000 * 1000
"""So much is kept beyond what the last job used."""
_UNUSED_SECONDS = 30 * 86400.0
_UNFINISHED = b".part-"
_UNFINISHED_SECONDS = 86400.0


class Store:
    """The contents in one folder. A digest is 64 hexadecimal digits."""

    def __init__(self, folder: bytes) -> None:
        self._folder = folder

    def open(self, digest: str, size: int) -> Optional[int]:
        """A descriptor to read contents of that size; None where they are not there."""
        path = self._path(digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        if os.fstat(descriptor).st_size == size:
            with contextlib.suppress(OSError):
                os.utime(path)  # used just now: the last to be removed
            return descriptor
        os.close(descriptor)
        return None

    def remove(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(digest))

    def begin(self) -> Optional[Tuple[int, bytes]]:
        """A new file to write contents to, and its path; None where there can be none."""
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            return tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)
        except OSError:
            return None

    def keep(self, path: bytes, digest: str) -> None:
        """Take a file that :meth:`begin` gave, written and closed, under its contents' name."""
        place = self._path(digest)
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            os.rename(path, place)
        except OSError:
            self.forget(path)

    def forget(self, path: bytes) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    def trim(self, used: Collection[str], beat: Callable[[], None]) -> None:
        """Remove what was not used for long, and the oldest of what is too much.

        Args:
            used: digests of what the last job used, which stays.
            beat: called for each file.
        """
        now = time.time()
        kept: List[Tuple[float, int, bytes]] = []
        for path, status in self._files():
            beat()
            name = os.path.basename(path)
            is_part = name.startswith(_UNFINISHED)
            longest = _UNFINISHED_SECONDS if is_part else _UNUSED_SECONDS
            if status.st_mtime < now - longest:
                self.forget(path)
            elif not is_part and name.decode("ascii", "replace") not in used:
                kept.append((status.st_mtime, status.st_size, path))
        left = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if left <= _MOST_BYTES:
                break
            beat()
            self.forget(path)
            left -= size

    def _files(self) -> Iterator[Tuple[bytes, os.stat_result]]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    yield path, os.lstat(path)

    def _path(self, digest: str) -> bytes:
        name = digest.encode("ascii")
        return os.path.join(self._folder, name[:2], name)
