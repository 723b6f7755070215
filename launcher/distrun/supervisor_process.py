"""The supervisor's process: a fork of the launch command, which has imported most of it already."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import NoReturn, Union

from distrun.errors import InternalError
from distrun.supervisor.hosts.local import SOURCES, isolated_python

_HARMLESS = {
    "PYTHON",  # of other tools: the interpreter that they use
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONNOUSERSITE"),
    *("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED"),
}
"""Variables with no effect on what is imported; what PYTHONPATH has done is looked at."""
_MODULE = "distrun.supervisor.main"
_LIBRARY = os.path.dirname(os.__file__)
_FIRST_ADDRESS = 45
"""Where `arg_start` stands in /proc/PID/stat after the process's name; see proc_pid_stat(5)."""
_WAIT_INTERVAL = 0.01


def start(job_id: str, descriptor: int) -> Supervisor:
    """Start a supervisor that serves a socket, in a session of its own.

    The signals of the terminal do not reach it, nor does what PYTHON* variables or the working
    folder have done to this process: it is then started as a program of its own, more slowly.

    Raises:
        OSError: there can be no further process.
    """
    if _is_plain():
        return _Fork(job_id, descriptor)
    return subprocess.Popen(
        isolated_python(_MODULE, job_id, str(descriptor)),
        stdin=subprocess.DEVNULL,
        stdout=2,  # until it has a log
        stderr=2,
        pass_fds=[descriptor],
        start_new_session=True,
        env={**os.environ, "DISTRUN_JOB_ID": job_id},
    )


def _is_plain() -> bool:
    """Whether this process may be forked, and its modules are those that `python -I` imports.

    The threads that Python knows of write output: they hold nothing that a supervisor uses.
    """
    settings = {name for name in os.environ if name.startswith("PYTHON")} - _HARMLESS
    if any(not name.startswith("PYTHON_") for name in settings):  # images set PYTHON_VERSION
        return False
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:  # there is no /proc: the supervisor says so
        return False
    if sys.warnoptions or threads > threading.active_count():
        return False
    library = {*sys.stdlib_module_names, "sitecustomize", "usercustomize"}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in library)
    return all(_is_standard(os.path.dirname(file)) for file in files if file is not None)


def _is_standard(folder: str) -> bool:
    """Whether a folder has modules of Python's own library."""
    inside = f"{folder}/".startswith(f"{_LIBRARY}/") or os.path.basename(folder) == "lib-dynload"
    return inside and "-packages" not in folder


class _Fork:
    """A supervisor that was forked from this process."""

    def __init__(self, job_id: str, descriptor: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if not self.pid:
                _become_supervisor(job_id, descriptor, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal; 0 if its parent is not told any more.

        Raises:
            subprocess.TimeoutExpired: it runs still, after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            try:
                pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            except ChildProcessError:
                self._code = 0
                break
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the supervisor", timeout or 0.0)
            else:
                time.sleep(_WAIT_INTERVAL)
        return self._code


Supervisor = Union["subprocess.Popen[bytes]", _Fork]


def _become_supervisor(job_id: str, descriptor: int, mask: set[int]) -> NoReturn:
    """Run the supervisor in this fork. Its caller's frames keep what they have: nothing returns."""
    try:
        gc.freeze()  # what the launch command has left is not finalized here
        os.setsid()
        _reset_descriptors(descriptor)
        os.environ["DISTRUN_JOB_ID"] = job_id
        with contextlib.suppress(OSError, ValueError):
            _rename_process(f"distrun: supervisor of {job_id}", f"DISTRUN_JOB_ID={job_id}")
        sys.argv = ["-c", job_id, str(descriptor)]
        sys.path[:] = [SOURCES, *filter(_is_standard, sys.path)]
        module = importlib.import_module(_MODULE)
        _reset_signals(mask)
        module.main()
    except BaseException:  # noqa: BLE001 - a defect; the frames below are the launch command's
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        os._exit(InternalError.exit_code)


def _reset_signals(mask: set[int]) -> None:
    """Give signals the effects that they have in a new program, and drop those that wait.

    They were meant for the launch command.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _reset_descriptors(kept: int) -> None:
    """Read nothing, write to standard error, and close all others."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _rename_process(title: str, variable: str) -> None:
    """Have `ps` show the title, and /proc/PID/environ this one variable.

    Raises:
        OSError: /proc does not tell where they are kept.
        ValueError: neither.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, last, first_variable, last_variable = map(
        int, fields[_FIRST_ADDRESS : _FIRST_ADDRESS + 4]
    )
    copied = dict(os.environ)
    os.environ.clear()
    os.environ.update(copied)  # C's strings are elsewhere now, and these may be overwritten
    for start, end, text in (
        (first, last, title),
        (first_variable, last_variable, variable),
    ):
        encoded = os.fsencode(text)
        if start > 0 and len(encoded) < end - start:
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, encoded, len(encoded))
            if start == first:  # without a null at the end, the title ends at the first one
                ctypes.memset(end - 1, ord("."), 1)
