"""The few Linux system calls that Python's standard library does not offer."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import resource
import select
import signal
import struct
import time
from typing import Iterable, Iterator, List, Optional, Set, Tuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_PUNCH_HOLE = 0x02

_IN_MODIFY = 0x0002
_IN_CREATE = 0x0100
_IN_ONESHOT = 0x80000000

ENDING_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
)
"""Those that end a command."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(name, os.strerror(number)))
    return result


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's. See prctl(2)."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent(parent: int, signum: int) -> None:
    """Have the kernel send `signum` to this process when the thread that forked it ends.

    Call this in the child. `parent` is the id of the process that forked it: if that died before
    the request was in place, this process exits at once.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(128 + signum)


def live_without_parent() -> None:
    """Undo :func:`die_with_parent`."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


@contextlib.contextmanager
def blocked(signals: Iterable[int] = ENDING_SIGNALS) -> Iterator[None]:
    """Block signals, also in the processes that are started meanwhile: they never receive them.

    Ignoring them there does not suffice: a program may reset that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals(mask: Iterable[int]) -> None:
    """Give signals that a process handles the effects that they have in a new program, in a fork.

    Those that wait are dropped. `mask`: the signals that are blocked from then on.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@functools.lru_cache(maxsize=1)
def changed_signals() -> List[int]:
    """Those without their default effect here. Ask when this process will not change others."""
    return [n for n in signal.valid_signals() if signal.getsignal(n) is not signal.SIG_DFL]


class Inotify:
    """A descriptor that becomes readable when a watched file grows or a folder gets a file.

    Register :meth:`fileno` with a selector, :meth:`drain` when it is readable. Raises OSError
    (EMFILE, ENOSPC) if the user's inotify instances or watches are used up; callers then poll.
    """

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC  # as IN_NONBLOCK and IN_CLOEXEC
        self._fd = _check(_libc.inotify_init1(flags), "inotify_init1")

    def fileno(self) -> int:
        return self._fd

    def watch_next_growth(self, path: str) -> int:
        """Watch one file until it is written to; returns the watch's number."""
        return self._watch(path, _IN_MODIFY | _IN_ONESHOT)

    def watch_folder(self, path: str) -> int:
        """Watch a folder for new files and for writes to those in it; returns the number."""
        return self._watch(path, _IN_CREATE | _IN_MODIFY)

    def unwatch(self, number: int) -> None:
        """End a watch. Its last event, without a name, is yet to come."""
        _libc.inotify_rm_watch(self._fd, number)  # it may have ended by itself

    def _watch(self, path: str, mask: int) -> int:
        raw = os.fsencode(path)
        return _check(_libc.inotify_add_watch(self._fd, raw, mask), "inotify_add_watch")

    def drain(self) -> Set[Tuple[int, bytes]]:
        """The watches that had events since the last call, with names; -1: some were lost."""
        seen: Set[Tuple[int, bytes]] = set()
        while True:
            try:
                block = os.read(self._fd, 65536)
            except BlockingIOError:
                return seen
            position = 0
            while position < len(block):
                watch, _mask, _cookie, length = struct.unpack_from("iIII", block, position)
                position += 16 + length
                seen.add((watch, block[position - length : position].rstrip(b"\0")))

    def close(self) -> None:
        os.close(self._fd)


def signal_pipe(numbers: Iterable[int]) -> io.FileIO:
    """A pipe on which each of these signals arrives as a byte; they have no other effect.

    It is a pipe because that holds 65,536 bytes; a socket is full after about 280, and a SIGTERM
    after as many SIGCHLD would be lost.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    return io.FileIO(reader)


def fork_with_pipe() -> Tuple[int, int]:
    """Fork with a pipe: returns 0 and its writing end in the child, else its id and the other."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except BaseException:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        return 0, writer
    os.close(writer)
    return pid, reader


_inherited_limit: Optional[Tuple[int, int]] = None


def raise_descriptor_limit() -> None:
    """Raise this process's limit on descriptors: each task, host or command needs some."""
    global _inherited_limit  # noqa: PLW0603 - a fact of this process, set once
    _inherited_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = _inherited_limit[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_descriptor_limit() -> None:
    """Give a fork of this process the limit that this one inherited, or a lower one set since."""
    if _inherited_limit is not None:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _inherited_limit)


LONGEST_WAIT = 86400.0
"""Seconds. A system call that waits takes at most 24 days: who waits longer waits several times."""


def wait_until_ready(
    readers: Iterable[int], writers: Iterable[int] = (), seconds: Optional[float] = None
) -> Set[int]:
    """Wait for one of these descriptors, also beyond 1024; returns those that are ready."""
    poll = select.poll()
    for event, descriptors in ((select.POLLIN, readers), (select.POLLOUT, writers)):
        for each in descriptors:
            poll.register(each, event)
    limit = None if seconds is None else 1000 * max(0.0, min(seconds, LONGEST_WAIT))
    return {each for each, _ in poll.poll(limit)}


def timer() -> int:
    """A descriptor for :func:`set_timer`: it becomes readable when the timer expires."""
    return _check(_libc.timerfd_create(time.CLOCK_BOOTTIME, os.O_CLOEXEC), "timerfd_create")


def set_timer(descriptor: int, seconds: float) -> None:
    """Set a timer again. It counts while the machine sleeps. See timerfd_create(2)."""
    value = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))
    _libc.timerfd_settime(descriptor, 0, value, None)


def reserve(descriptor: int, offset: int, count: int) -> None:
    """Reserve room on the disk for a file to grow, without changing its size. See fallocate(2).

    Raises OSError: ENOSPC or EDQUOT if there is no room; others if the file system cannot do it.
    """
    _allocate(descriptor, _FALLOC_FL_KEEP_SIZE, offset, count)


def punch_start(descriptor: int, count: int) -> None:
    """Free the disk space of a file's first `count` bytes: they become a hole; the size stays.

    Raises OSError: EOPNOTSUPP if the file system cannot do it. See fallocate(2).
    """
    _allocate(descriptor, _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE, 0, count)


HOLE_STEP = 64 * 1024
"""The size of a hole is a multiple of so many bytes, and so of all usual sizes of a block."""


def hole_size(size: int, limit: Optional[int]) -> int:
    """How many of the first bytes of a log of `size` bytes are a hole; a limit of None: none."""
    return 0 if limit is None else max(0, size - limit) // HOLE_STEP * HOLE_STEP


def check_holes(folder: str) -> None:
    """Raises OSError if the file system of a folder supports no holes (EOPNOTSUPP)."""
    import tempfile  # few jobs have a limit

    with tempfile.TemporaryFile(dir=folder) as file:
        os.ftruncate(file.fileno(), HOLE_STEP)
        punch_start(file.fileno(), HOLE_STEP)


def _allocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    start, size = ctypes.c_int64(offset), ctypes.c_int64(count)
    _check(_libc.fallocate(descriptor, mode, start, size), "fallocate")


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for a real-time or unknown signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
