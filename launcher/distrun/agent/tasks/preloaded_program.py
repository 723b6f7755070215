"""A process that has imported a program's modules, and forks the program from itself.

The program's interpreter runs this text, on a machine that need not have distrun. The agent is at
the other end of the socket whose descriptor is the argument. It first sends what to import, and
gets `ready` or `error` with the reason. Each further message is an attempt to fork, with two
descriptors: its log, and a socket for what becomes of it.

The attempt has to be the agent's child, so this process forks one that forks the attempt, says its
id, and ends once the agent has noted that. See :mod:`distrun.agent.tasks.preload`.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import types
import warnings
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from typing import Any, Dict, List, NoReturn, Tuple

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 20
_MOST_OUTPUT = 1 << 16
_MOST_ERROR_BYTES = 4000
_EXIT_NOT_EXECUTED = 127
_RESERVED = b"DISTRUN_RESERVED="
"""The variable whose place in memory holds, after a fork, those that show whose process it is."""


def main(control: socket.socket) -> List[str]:
    """Import, then fork attempts until the agent closes its end.

    Returns in each attempt, with the words of its program.
    """
    os.close(int(__file__.rpartition("/")[2]))  # of this text
    order, _ = _receive(control)
    gc.disable()  # imports make many objects and hardly any garbage
    error = _import(order["modules"], order["path"])
    sys.stdout.flush()
    sys.stderr.flush()
    control.send(
        ("error " + error).encode("utf-8", "replace")[:_MOST_ERROR_BYTES] if error else b"ready"
    )
    gc.freeze()  # the attempts share most of their memory
    _rename(order["name"].encode())
    while True:
        attempt, descriptors = _receive(control)
        if not attempt:
            os._exit(0)
        log, status = descriptors[0], socket.socket(fileno=descriptors[1])
        if _fork(attempt, log, status):
            control.close()
            gc.enable()
            return list(attempt["argv"])
        os.close(log)
        status.close()


def _receive(control: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """Return a message and its descriptors; an empty one at the end."""
    size = array.array("i").itemsize
    room, flags = socket.CMSG_SPACE(2 * size), socket.MSG_CMSG_CLOEXEC
    block, control_data, _, _ = control.recvmsg(_MOST_BYTES, room, flags)
    descriptors = array.array("i")
    for _, _, each in control_data:
        descriptors.frombytes(each[: len(each) - len(each) % size])
    return (json.loads(block) if block else {}), list(descriptors)


def _import(modules: List[str], path: str) -> str:
    """Import the modules as the program would; return what went wrong, or ''."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = path
    try:
        for name in modules:
            __import__(name)
    except BaseException as error:  # noqa: BLE001 - a module may do anything
        return "{}: {}".format(type(error).__name__, error)
    threads = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    if threads:
        return "an import has started the thread {}, which a fork would lack".format(threads[0])
    return ""


# Forks -------------------------------------------------------------------------------------


def _fork(attempt: Dict[str, Any], log: int, status: socket.socket) -> bool:
    """Fork an attempt; True in it. Returns in this process once the one in between has ended."""
    ends: Tuple[int, ...] = ()
    try:
        ends = gate, held = os.pipe()
        between = _forked()
    except OSError as error:
        for each in ends:
            os.close(each)
        _say(status, "prepare {}".format(error.errno))
        return False
    if between:
        os.close(gate)
        os.waitpid(between, 0)
        os.close(held)  # opens the gate: the agent is the attempt's parent now
        return False
    os.close(held)
    try:
        pid = _forked()
    except OSError as error:
        _say(status, "prepare {}".format(error.errno))
        os._exit(1)
    if pid == 0:
        _become(attempt, log, status, gate)
        return True
    _say(status, str(pid))
    with suppress(OSError):
        status.recv(1, socket.MSG_PEEK)  # the attempt takes it
    os._exit(0)


def _forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads that numpy's library handles
        return os.fork()


def _become(attempt: Dict[str, Any], log: int, status: socket.socket, gate: int) -> None:
    """Set up this process as the agent sets up one that executes a program."""
    stage = "prepare"
    try:
        os.read(gate, 1)
        os.close(gate)
        if not status.recv(1, socket.MSG_DONTWAIT):
            os._exit(_EXIT_NOT_EXECUTED)  # the agent does not want it any more
        os.setsid()
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != attempt["agent"]:
            os._exit(_EXIT_NOT_EXECUTED)
        printed = os.pread(1, _MOST_OUTPUT, 0)  # while importing
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        stage = "workdir"
        os.chdir(os.fsencode(attempt["workdir"]))
        stage = "prepare"
        del os.environ[_RESERVED[:-1].decode()]
        os.environ.update(attempt["env"])
        own = ["{}={}".format(*each) for each in attempt["env"].items() if "DISTRUN_" in each[0]]
        own.sort(key=len)
        _overwrite(_RESERVED, "\0".join(own).encode("utf-8", "surrogateescape"))
        _rename(b"\0".join(each.encode("utf-8", "surrogateescape") for each in attempt["argv"]))
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # else all attempts draw the same numbers
        os.write(1, printed)
    except OSError as error:
        _give_up(status, "{} {}".format(stage, error.errno or 0))
    except BaseException as error:  # noqa: BLE001 - the agent has to know
        _give_up(status, "defect {!r}".format(error))
    status.close()  # tells the agent that the program runs


def _give_up(status: socket.socket, why: str) -> NoReturn:
    _say(status, why)
    os._exit(_EXIT_NOT_EXECUTED)


def _say(status: socket.socket, text: str) -> None:
    with suppress(OSError):  # the agent may have given up this attempt
        status.send(text.encode("utf-8", "replace")[:_MOST_ERROR_BYTES])


# What other programs see -------------------------------------------------------------------


def _memory(first: int) -> Tuple[int, int]:
    """Where the kernel has this process's arguments (first is 48) or variables (50).

    See proc_pid_stat(5).
    """
    with open("/proc/self/stat", "rb") as file:
        words = file.read().rpartition(b")")[2].split()
    return int(words[first - 3]), int(words[first - 2])


def _rename(name: bytes) -> None:
    """Change the arguments that ps shows."""
    begin, end = _memory(48)
    if begin:
        ctypes.memmove(begin, name[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _overwrite(prefix: bytes, text: bytes) -> None:
    """Change what /proc/PID/environ shows, in the memory of the variable with that prefix."""
    begin, end = _memory(50)
    memory = ctypes.string_at(begin, end - begin) if begin else b""
    at = memory.find(b"\0" + prefix) + 1
    if at:
        size = memory.index(b"\0", at) - at
        whole = text[:size] if len(text) <= size else text[:size].rpartition(b"\0")[0]
        ctypes.memmove(begin + at, whole.ljust(size, b"\0"), size)


# The program -------------------------------------------------------------------------------


def run(argv: List[str]) -> bool:
    """Run the program of an interpreter's words: a script, or `-m` and a module.

    Returns False after an exception that nothing caught. It is printed.
    """
    sys.orig_argv = list(argv)  # type: ignore[attr-defined,unused-ignore] # since Python 3.10
    try:
        if argv[1] == "-m":
            _run_module(argv)
        else:
            _run_script(argv)
    except SystemExit:
        raise
    except KeyboardInterrupt as error:
        _print(error)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        _print(error)
    else:
        return True
    return False


def _run_module(argv: List[str]) -> None:
    sys.argv = [argv[2], *argv[3:]]
    try:
        is_found = find_spec(argv[2]) is not None
    except (ImportError, ValueError):
        is_found = False
    if not is_found:
        _execute(argv)
    runpy.run_module(argv[2], run_name="__main__", alter_sys=True)


def _run_script(argv: List[str]) -> None:
    path = argv[1]
    sys.argv = argv[1:]
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError:
        _execute(argv)
    if b"\0" in source:
        _execute(argv)
    module = types.ModuleType("__main__")
    kept = ("__annotations__", "__builtins__", "__cached__")
    vars(module).update((name, each) for name, each in globals().items() if name in kept)
    vars(module).update(__file__=path, __loader__=SourceFileLoader("__main__", path))
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user's


def _execute(argv: List[str]) -> NoReturn:
    """Execute the interpreter, which finds the program, or says what is wrong with it."""
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is meant


def _print(error: BaseException) -> None:
    """Print the traceback without the functions of this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)


if __name__ == "__main__":
    if not run(main(socket.socket(fileno=int(sys.argv[1])))):
        sys.exit(1)
