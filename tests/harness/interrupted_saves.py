"""Kills a process in the middle of a save: when it has created a file and not written it yet.

The kernel asks for permission before it completes an open (fanotify(7)), so the moment is exact.
"""

import contextlib
import ctypes
import os
import select
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.requirements import AS_ROOT, reason

_FAN_CLASS_CONTENT, _FAN_NONBLOCK = 0x04, 0x02
_FAN_MARK_ADD, _FAN_MARK_MOUNT = 0x01, 0x10
_FAN_OPEN_PERM, _FAN_ALLOW, _FAN_DENY = 0x00010000, 1, 2
_AT_FDCWD = -100
_EVENT = struct.Struct("IBBHQii")

Chosen = Callable[[str, int], bool]
"""Whether the process with that id must die when it opens the file of that name."""


class InterruptedSaves:
    """Watches all files below a mount point, and kills the first process that is chosen."""

    def __init__(self, folder: Path, is_chosen: Chosen) -> None:
        self._folder, self._is_chosen = folder, is_chosen
        self.victim: int | None = None
        """The process that was killed."""
        libc = ctypes.CDLL(None, use_errno=True)
        flags = _FAN_CLASS_CONTENT | _FAN_NONBLOCK
        self._fd = libc.fanotify_init(flags, os.O_RDONLY | os.O_LARGEFILE)
        if self._fd < 0:
            pytest.skip(reason(f"no fanotify: {os.strerror(ctypes.get_errno())}", AS_ROOT))
        mask, path = ctypes.c_uint64(_FAN_OPEN_PERM), os.fsencode(folder)
        if libc.fanotify_mark(self._fd, _FAN_MARK_ADD | _FAN_MARK_MOUNT, mask, _AT_FDCWD, path):
            raise OSError(ctypes.get_errno(), f"fanotify_mark {folder}")
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._end], [], [])
            if self._end in ready:
                return
            block = os.read(self._fd, 4096)
            for at in range(0, len(block), _EVENT.size):
                *_, opened, pid = _EVENT.unpack_from(block, at)
                name = os.path.relpath(os.readlink(f"/proc/self/fd/{opened}"), self._folder)
                answer = _FAN_ALLOW
                if self.victim is None and self._is_chosen(name, pid):
                    self.victim, answer = pid, _FAN_DENY
                    os.kill(pid, signal.SIGKILL)
                os.write(self._fd, struct.Struct("iI").pack(opened, answer))
                os.close(opened)

    def close(self) -> None:
        """Stop; from now on, nobody waits for permission."""
        os.close(self._ended)
        self._thread.join()
        os.close(self._end)
        os.close(self._fd)


@contextlib.contextmanager
def interrupted_saves(folder: Path, is_chosen: Chosen) -> Iterator[InterruptedSaves]:
    """Make a folder with a file system of its own, whose files are watched while the test runs."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(reason("no file system can be mounted", AS_ROOT))
    try:
        saves = InterruptedSaves(folder, is_chosen)
        try:
            yield saves
        finally:
            saves.close()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
