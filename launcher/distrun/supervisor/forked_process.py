"""Processes that are forks of this one: they start sooner than a new Python, and share its memory.

A fork keeps only the modules of its parent: no open descriptor except those that it is given, no
signal handlers, no title. Fork only while there is one thread, or where the others hold nothing
that the fork uses.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection
from typing import NoReturn, TypeVar, Union

from distrun.agent.linux import job_processes, syscalls

_FIRST_ADDRESS = 45
"""The position of `arg_start` in /proc/PID/stat after the name; see proc_pid_stat(5)."""
_LONGEST_INTERVAL = 0.02
"""Seconds between two looks at whether a fork has ended; they begin with less."""


class ForkedProcess:
    """A fork of this process that runs a function; the interface is a part of Popen's.

    Args:
        run: what the fork runs, after `enter`. It never returns.
        enter: called first, with all signals blocked: it may import modules.
        stream: becomes its standard input and output; None: it has none.
        exit_code: its exit code after a defect.
    """

    def __init__(
        self,
        run: Callable[[], NoReturn],
        *,
        enter: Callable[[], None],
        name: str,
        stream: int | None = None,
        kept: Collection[int] = (),
        exit_code: int,
    ) -> None:
        self.returncode: int | None = None
        os.listdir("/proc/self/fd")  # the fork closes what is listed there: it must be readable
        for output in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                output.flush()
        gc.freeze()  # what both have stays shared, and is not finalized in the fork
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid:
                return
            try:
                _reset_descriptors(stream, kept)
                rename(name, "")
                enter()
                syscalls.reset_signals(blocked)
                run()
            except BaseException:  # noqa: BLE001 - a defect; the frames below are the parent's
                with contextlib.suppress(OSError):
                    traceback.print_exc()
            finally:
                os._exit(exit_code)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; 0: others have reaped it; None: it runs."""
        return self._wait(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired: it runs after that time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        interval = 0.0005
        while (code := self._wait(0 if deadline is None else os.WNOHANG)) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(interval)
            interval = min(2 * interval, _LONGEST_INTERVAL)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


_parents_streams: list[object] = []
"""They would close the descriptors of the fork's own streams, if they went."""

Process = Union["subprocess.Popen[bytes]", ForkedProcess]
P = TypeVar("P", bound=Process)


def with_socket(start: Callable[[int], P]) -> tuple[P, socket.socket]:
    """Start a process that serves a socket, by its descriptor; return the other end, too."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            return start(theirs.fileno()), ours
        except OSError:
            ours.close()
            raise


def _reset_descriptors(stream: int | None, kept: Collection[int]) -> None:
    """Set up the standard streams, and close all other descriptors."""
    if stream is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
    else:
        os.dup2(stream, 0)
        os.dup2(stream, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    _parents_streams.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def set_token(token: str) -> None:
    """Set the token of this process's job; what it executes inherits that. Empty: it has no job."""
    os.environ[job_processes.VARIABLE] = token


def token() -> str:
    """Return the token of this process's job; empty: it has no job."""
    return os.environ.get(job_processes.VARIABLE, "")


def rename(name: str, job_id: str) -> None:
    """Have `ps` show the name of this process, and /proc/PID/environ only its job's id and token.

    Neither happens where /proc does not show the addresses, or for a name that is too long.
    """
    own = {}
    if job_id:
        os.environ["DISTRUN_JOB_ID"] = own["DISTRUN_JOB_ID"] = job_id
        if token():
            own[job_processes.VARIABLE] = token()
    with contextlib.suppress(OSError, ValueError):
        _rename(name, "\0".join(f"{variable}={value}" for variable, value in own.items()))


def _rename(name: str, variables: str) -> None:
    """Have `ps` show the name, and /proc/PID/environ the variables. Raises OSError, ValueError."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, last, first_variable, last_variable = map(
        int, fields[_FIRST_ADDRESS : _FIRST_ADDRESS + 4]
    )
    copied = dict(os.environ)
    os.environ.clear()
    os.environ.update(copied)  # C's strings are elsewhere now, and these may be overwritten
    for start, end, text in ((first, last, name), (first_variable, last_variable, variables)):
        encoded = os.fsencode(text)
        if start > 0 and len(encoded) < end - start:
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, encoded, len(encoded))
            if start == first:  # without a null at the end, the title ends at the first one
                ctypes.memset(end - 1, ord("."), 1)
