"""Output that a thread writes, so that a reader that stops reading blocks nothing else."""

from __future__ import annotations

import errno
import io
import os
import queue
import select
import threading
import time
from typing import TYPE_CHECKING

from distrun.agent.linux import syscalls

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MOST_AHEAD = 256 * 1024
"""Bytes that wait for the reader before nothing more should be written."""


class _Writer(threading.Thread):
    """Writes blocks in order. It is alone in waiting for the reader, and ends with the process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.blocks: queue.SimpleQueue[tuple[Output, bytes]] = queue.SimpleQueue()
        try:
            with syscalls.blocked():  # else it would get what the main thread blocks
                self.start()
        except RuntimeError as error:  # Python drops the error number
            import resource

            if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
                raise MemoryError from error  # a thread's stack needs most
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error

    def run(self) -> None:
        while True:
            output, block = self.blocks.get()
            output.write_now(block)


class Output(io.RawIOBase):
    """A stream whose writes never block. They wait in memory until the reader takes them.

    The descriptor stays as it is: it may be shared with other programs, which O_NONBLOCK would
    break. After a write has failed, nothing more is written.

    Register :attr:`progress` with a selector: after a write, it is readable when at most 128 KiB
    are pending, or when writing failed, until the next call of :meth:`acknowledge`.

    Args:
        beside: another output. Writes of both to one file or terminal keep their order.
        bounded: drop what is written while the reader is 256 KiB behind.
    """

    def __init__(
        self, descriptor: int, *, beside: Output | None = None, bounded: bool = False
    ) -> None:
        self.is_terminal = os.isatty(descriptor)
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._bounded = bounded
        self._queued = 0
        self._written = 0  # only the thread changes it
        self.progress = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        is_shared = beside is not None and self.shares(beside)
        self.writer: _Writer = beside.writer if beside is not None and is_shared else _Writer()

    def shares(self, other: Output) -> bool:
        """Whether both write to the same file or terminal."""
        return os.path.sameopenfile(self._descriptor, other.fileno())

    @property
    def is_gone(self) -> bool:
        """Whether the reader is gone: a program that exited, a terminal that was closed."""
        gone = isinstance(self.failure, (BrokenPipeError, ConnectionError))
        return gone or (self.is_terminal and self.failure is not None)

    @property
    def pending(self) -> int:
        """Bytes that the reader has not taken yet."""
        return self._queued - self._written

    @property
    def is_behind(self) -> bool:
        """Whether writing more should wait."""
        return self.pending > MOST_AHEAD

    def write(self, block: ReadableBuffer) -> int:
        data = bytes(block)
        if self.failure is None and not (self._bounded and self.is_behind):
            self._queued += len(data)
            self.writer.blocks.put((self, data))
        return len(data)

    def write_now(self, block: bytes) -> None:
        view = memoryview(block)
        while view and self.failure is None:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # another program has set O_NONBLOCK
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self.failure = error
        self._written += len(block)
        if self.failure is not None or self.pending <= MOST_AHEAD // 2:  # not for each block
            os.eventfd_write(self.progress, 1)

    def acknowledge(self) -> None:
        os.eventfd_read(self.progress)

    def wait(self, at_most: int, wake: int, deadline: float | None) -> bool:
        """Wait until at most so many bytes are pending.

        Returns False if the descriptor `wake` becomes readable or the deadline (monotonic) passes
        before that.
        """
        while self.pending > at_most:
            left = None if deadline is None else deadline - time.monotonic()
            ready = syscalls.wait_until_ready([self.progress, wake], (), left)
            if wake in ready or not ready:
                return False
            self.acknowledge()
        return True

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.is_terminal

    def fileno(self) -> int:
        return self._descriptor
