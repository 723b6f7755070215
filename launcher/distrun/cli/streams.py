"""The standard streams of a command: closed ones, failed writes, and readers that stop reading."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from distrun.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT, _STDERR = 1, 2
_STALLED_SECONDS = 0.5
"""After a signal, how long a reader may take nothing before what is left for it is discarded."""


class _Stream(io.FileIO):
    """Writes to a standard stream, which stays open.

    A failed write of standard output is an OutputError, except that of a pipe without a reader.
    Failed writes of standard error are ignored: there is nowhere to report them.
    """

    def __init__(self, descriptor: int, replaced: TextIO | None) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._replaced = replaced  # Python closes the descriptor with this stream

    def write(self, block: ReadableBuffer) -> int:
        try:
            # The stream does not block if another program that shares it has made it so.
            while (written := super().write(block)) is None:
                poll = select.poll()
                poll.register(self, select.POLLOUT)
                poll.poll()
        except OSError as error:
            if self.fileno() == _STDERR:
                return memoryview(block).nbytes
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputError(failure_text(error)) from error
        return written


def end_with_reader() -> None:
    """End the process, which follows a job, as soon as the reader of its output has exited."""
    import threading

    def wait() -> None:
        poll = select.poll()
        poll.register(STDOUT, 0)
        if any(event & select.POLLERR for _, event in poll.poll()):
            os._exit(128 + signal.SIGPIPE)

    threading.Thread(target=wait, daemon=True).start()


def failure_text(error: OSError) -> str:
    """Why standard output cannot be written."""
    if error.errno == errno.EBADF:
        return "standard output is closed"
    return f"standard output cannot be written: {error.strerror}"


def install() -> None:
    """Set up sys.stdout and sys.stderr, none of whose descriptors is closed.

    Characters that the encoding lacks are printed as escapes.
    """
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = text_stream(_Stream(STDOUT, sys.stdout), sys.stdout)
    sys.stderr = text_stream(_Stream(_STDERR, sys.stderr), sys.stderr, line_buffering=True)


def text_stream(
    raw: io.RawIOBase, replaced: TextIO | None, *, line_buffering: bool = False
) -> TextIO:
    """Return a stream that writes text to `raw`, encoded as for the stream that it replaces."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=replaced.encoding if replaced else None,
        errors="backslashreplace",
        line_buffering=line_buffering or raw.isatty(),
    )


def discard(descriptor: int) -> None:
    """Redirect a broken stream to /dev/null, so that closing it raises no second error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def discard_when_stalled() -> None:
    """From now on, discard the output that its reader does not take within half a second.

    A write that waits for the reader then succeeds. Call this when a signal ends the command: the
    rest of it must not wait for a pager or for a stopped terminal.
    """
    signal.signal(signal.SIGALRM, _discard_stalled)
    signal.setitimer(signal.ITIMER_REAL, _STALLED_SECONDS, _STALLED_SECONDS)


def _discard_stalled(_number: int, _frame: object) -> None:
    poll = select.poll()
    for descriptor in (STDOUT, _STDERR):
        poll.register(descriptor, select.POLLOUT)
    ready = {descriptor for descriptor, _ in poll.poll(0)}
    for descriptor in {STDOUT, _STDERR} - ready:
        discard(descriptor)
