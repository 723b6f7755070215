"""The launching side's copies of the logs that another host's tasks write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from distrun.agent.protocol import LogData


class LogMirror:
    """Copies of one host's logs and their indexes, each as far as it has come.

    Args:
        folder: where the copies are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._ends: dict[str, int | None] = {}
        """How long each log is for good; None: it may grow."""
        self.failure: str | None = None
        """Why the copies are not complete, once they cannot be."""

    def expect(self, log: str) -> None:
        """Take what comes of this log, and of its index. Anything else is left out."""
        self._sizes.setdefault(log, 0)
        self._ends[log] = None
        self._sizes.setdefault(f"{os.path.splitext(log)[0]}.idx", 0)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self._sizes)

    def end(self, log: str, size: int) -> None:
        """Note how much there is of a log that does not grow any more."""
        self._ends[log] = size

    @property
    def are_whole(self) -> bool:
        """Whether all that tasks printed is here, and nothing more is to come."""
        return all(
            size is not None and self._sizes[log] >= size for log, size in self._ends.items()
        )

    def write(self, part: LogData) -> bool:
        """Add a part to its copy, unless it is there already; False: it is lost here."""
        size = self._sizes.get(part.name)
        if self.failure is not None:
            return False
        if size is None:
            return True
        if part.offset > size:
            self.failure = f"a part of {part.name} is missing"
            return False
        fresh = part.data[size - part.offset :]
        try:
            self._append(part.name, fresh)
        except OSError as error:
            self.failure = f"the copy of {part.name} cannot be written: {error.strerror}"
            return False
        self._sizes[part.name] = size + len(fresh)
        return True

    def _append(self, name: str, fresh: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._folder / name, flags, 0o600)
        try:
            view = memoryview(fresh)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
