"""Copies of a host's logs in the job's folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distrun.agent.protocol import INDEX_SUFFIX, Cause, Code

if TYPE_CHECKING:
    from pathlib import Path

    from distrun.agent.protocol import LogData


class LogMirror:
    """Copies the logs of one host's tasks, and the logs' indexes, into a folder as they arrive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sizes: dict[str, int] = {}
        """How many bytes of each file are here."""
        self.final_sizes: dict[str, int | None] = {}
        """The size of each log once its task has ended; None: it may grow."""
        self.failure: Cause | None = None
        """Why the copies cannot become complete."""

    def add(self, log: str) -> None:
        """Copy this log and its index from now on; parts of other files are ignored."""
        self.sizes.setdefault(log, 0)
        self.final_sizes[log] = None
        self.sizes.setdefault(os.path.splitext(log)[0] + INDEX_SUFFIX, 0)

    @property
    def is_complete(self) -> bool:
        """Whether all output of the tasks is here, and no more will come."""
        return all(
            size is not None and self.sizes[log] >= size for log, size in self.final_sizes.items()
        )

    def write(self, part: LogData) -> bool:
        """Append a part to its copy, unless it is there already. Returns False if it is lost."""
        size = self.sizes.get(part.name)
        if self.failure is not None:
            return False
        if size is None:
            return True
        if part.offset > size:
            self.failure = Cause(Code.LOG_PART_MISSING, path=part.name)
            return False
        fresh = part.data[size - part.offset :]
        try:
            self._append(part.name, fresh)
        except OSError as error:
            errno = error.errno or 0
            self.failure = Cause(Code.LOG_COPY_NOT_WRITTEN, path=part.name, errno=errno)
            return False
        self.sizes[part.name] = size + len(fresh)
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
