"""Starts attempts as forks of a process that has already imported their modules.

The process is one of the program's own interpreter. It imports the modules when the first of its
tasks starts, and serves all tasks whose interpreter, folders and variables are the same; so those
of a role share one, and a restart imports nothing. A fork differs from an execution in nothing that
a program should notice. Where a fork fails, the program is executed.
"""

from __future__ import annotations

import array
import json
import os
import selectors
import signal
import socket
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from typing import Callable, Dict, List, NoReturn, Optional, Set, Tuple

from distrun.agent.linux import labels
from distrun.agent.protocol import Cause, Code, StartTask
from distrun.agent.tasks import program
from distrun.agent.tasks.program import Execution, Start

_Base = Tuple[object, ...]
"""What a process with imports and its attempts have in common."""
Done = Callable[[Optional[Execution], Optional[Cause]], None]
"""Gets the fork; or None if the program is to be executed, with the reason if that is news."""

_IMPORT_SECONDS = 120.0
_FORK_SECONDS = 5.0
_MOST_FAILURES = 3
_OWN = b"DISTRUN_"
_FREE = frozenset(
    (
        *(b"TF_CONFIG", b"CUDA_VISIBLE_DEVICES", b"no_proxy", b"NO_PROXY"),
        *(b"RANK", b"WORLD_SIZE", b"LOCAL_RANK", b"LOCAL_WORLD_SIZE"),
        *(b"MASTER_ADDR", b"MASTER_PORT"),
    )
)
"""Variables that may differ after the import: only programs read them, or what they call later."""
_RESERVED = b"DISTRUN_RESERVED"
_ROOM = 1000
"""Bytes more than the first attempt's arguments, or names, take in memory."""
_ERROR_BYTES = 4096


class Preloader:
    """The processes with imported modules. `children` are their ids."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._processes: Dict[_Base, _Process] = {}
        self._base_of: Dict[str, _Base] = {}
        """What the last attempt of each task had in common with its process."""
        self._failures: Dict[_Base, int] = {}

    @property
    def children(self) -> Set[int]:
        return {each.pid for each in self._processes.values()}

    @property
    def has_waiting(self) -> bool:
        return any(each.waiting for each in self._processes.values())

    @property
    def dues(self) -> List[Optional[float]]:
        """The times at which :meth:`on_time` has something to do."""
        return [each.due for each in self._processes.values()]

    def on_time(self, now: float) -> None:
        for each in list(self._processes.values()):
            if each.due is not None and each.due <= now:
                self._give_up(each, "it took too long")

    def start(self, start: Start, done: Done) -> None:
        """Fork an attempt once the modules are imported; calls `done`, perhaps at once."""
        base = _base(start)
        self._base_of[start.order.task] = base
        for each in list(self._processes.values()):
            if each.base not in self._base_of.values():
                self._close(each)
        process = self._processes.get(base)
        if process is None:
            if self._failures.get(base, 0) >= _MOST_FAILURES:
                done(None, None)
                return
            try:
                process = self._processes[base] = _Process(start, base)
            except OSError as error:
                self._failures[base] = _MOST_FAILURES
                done(None, _cause(os.strerror(error.errno or 0)))
                return
            self._watch(process)
        process.waiting[start.order.task] = _Waiting(start, done)
        self._fork_next(process)

    def cancel(self, task: str) -> None:
        """Have a task executed at once if it waits."""
        for process in list(self._processes.values()):
            if task in process.waiting:
                self._finish(process, process.waiting[task])

    def close(self) -> None:
        """End the processes. What waits is executed."""
        for process in list(self._processes.values()):
            self._close(process)

    def _watch(self, process: _Process) -> None:
        process.due = time.monotonic() + _IMPORT_SECONDS
        self._selector.register(
            process.control, selectors.EVENT_READ, lambda: self._on_answer(process)
        )

    def _on_answer(self, process: _Process) -> None:
        try:
            answer = process.control.recv(_ERROR_BYTES).decode("utf-8", "replace")
        except OSError:
            answer = ""
        if answer == "ready":
            process.is_ready, process.due = True, None
            self._fork_next(process)
        elif answer:
            self._failures[process.base] = _MOST_FAILURES
            self._give_up(process, answer.partition(" ")[2])
        else:
            self._give_up(process, process.end())

    def _give_up(self, process: _Process, why: str) -> None:
        self._failures[process.base] = self._failures.get(process.base, 0) + 1
        self._close(process, _cause(why))

    def _close(self, process: _Process, cause: Optional[Cause] = None) -> None:
        """End a process. One of those that wait for it is told why."""
        del self._processes[process.base]
        self._selector.unregister(process.control)
        process.end()
        process.is_ready = False
        for attempt in list(process.waiting.values()):
            self._finish(process, attempt, None, cause)
            cause = None

    # Forks ---------------------------------------------------------------------------------

    def _fork_next(self, process: _Process) -> None:
        """Ask for the next attempt, unless another one is being forked."""
        waiting = list(process.waiting.values())
        if not process.is_ready or any(each.status is not None for each in waiting):
            return
        if not waiting:
            process.due = None
            return
        attempt = waiting[0]
        try:
            attempt.status = status = process.request(attempt)
        except OSError:  # e.g. too long a message
            self._finish(process, attempt)
            return
        process.due = time.monotonic() + _FORK_SECONDS
        self._selector.register(
            status, selectors.EVENT_READ, lambda: self._on_status(process, attempt, status)
        )

    def _on_status(self, process: _Process, attempt: _Waiting, status: socket.socket) -> None:
        try:
            word = status.recv(_ERROR_BYTES)
            if word.isdigit():
                labels.put(attempt.start.label, int(word))
                status.send(b"1")
        except OSError:
            word = b""
        if not word.isdigit():
            self._finish(process, attempt)
            return
        self._selector.unregister(status)
        attempt.status = None
        status.setblocking(False)
        self._finish(process, attempt, Execution(int(word), status.detach()))

    def _finish(
        self,
        process: _Process,
        attempt: _Waiting,
        execution: Optional[Execution] = None,
        cause: Optional[Cause] = None,
    ) -> None:
        del process.waiting[attempt.start.order.task]
        if attempt.status is not None:
            self._selector.unregister(attempt.status)
            attempt.status.close()  # a fork that there may be ends
        attempt.done(execution, cause)
        self._fork_next(process)


class _Waiting:
    """A start that waits. `status`: the socket that says what becomes of it."""

    def __init__(self, start: Start, done: Done) -> None:
        self.start, self.done = start, done
        self.status: Optional[socket.socket] = None


class _Process:
    """A process that imports, then forks. Raises OSError if it cannot be made."""

    def __init__(self, start: Start, base: _Base) -> None:
        order = start.order
        self.base = base
        self.due: Optional[float] = None
        self.is_ready = False
        self._ended: Optional[str] = None
        self.waiting: Dict[str, _Waiting] = {}
        self._agent = os.getpid()
        with ExitStack() as opened, ExitStack() as lent:
            text = _in_memory("distrun", _source())
            lent.callback(os.close, text)
            self._output = output = _in_memory("output", b"")
            opened.callback(os.close, output)
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.callback(self.control.close)
            lent.callback(theirs.close)
            self.pid = os.fork()
            if self.pid == 0:
                self._become(start, text, output, theirs.fileno())
            opened.pop_all()
        self.control.setblocking(False)
        name = order.task.partition(":")[0]
        first = {
            "modules": list(order.preload),
            "path": _path(order),
            "name": "distrun: imports of {}".format(name),
        }
        with suppress(OSError):  # its end is noticed anyway
            self.control.send(json.dumps(first).encode("ascii"))

    def _become(self, start: Start, text: int, output: int, control: int) -> NoReturn:
        order, env = start.order, start.env
        try:
            program.lead_session(self._agent, signal.SIGKILL)
            program.redirect(output)
            os.chdir(os.fsencode(program.workdir(order)))
            for each in (text, control):
                os.set_inheritable(each, True)
            words = sum(len(word) + 1 for word in order.argv) + _ROOM
            own = {name: value for name, value in env.items() if name.startswith(_OWN)}
            kept = {name: value for name, value in env.items() if not _is_free(name)}
            for name in (b"DISTRUN_JOB_ID", b"DISTRUN_TOKEN"):
                kept[name] = own.get(name, b"")
            kept[_RESERVED] = b" " * (_ROOM + len(order.task))
            path = "/proc/self/fd/{}".format(text)
            argv = [order.argv[0], path, str(control), " " * words]
            os.execvpe(argv[0], argv, kept)  # noqa: S606 - no shell is meant
        finally:
            os._exit(127)

    def request(self, attempt: _Waiting) -> socket.socket:
        """Ask for an attempt; returns the socket for its status. Raises OSError."""
        start = attempt.start
        order = start.order
        env = {os.fsdecode(k): os.fsdecode(v) for k, v in start.env.items() if _is_free(k)}
        message = {
            "agent": self._agent,
            "argv": list(order.argv),
            "env": env,
            "workdir": program.workdir(order),
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = -1
        try:
            log = program.open_log(start.log)
            passed = array.array("i", [log, theirs.fileno()])
            block = json.dumps(message).encode("ascii")
            self.control.sendmsg([block], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if log >= 0:
                os.close(log)
        return ours

    def end(self) -> str:
        """Kill and reap the process; returns how it had ended if it already had."""
        if self._ended is None:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            status = os.waitpid(self.pid, 0)[1]
            self._ended = self._how(status)
            self.control.close()
            os.close(self._output)
        return self._ended

    def _how(self, status: int) -> str:
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return "the importing process was killed by signal {}".format(number)
        size = os.fstat(self._output).st_size
        block = os.pread(self._output, _ERROR_BYTES, max(0, size - _ERROR_BYTES))
        lines = [line for line in block.decode("utf-8", "replace").split("\n") if line.strip()]
        how = "the importing process exited {}".format(os.WEXITSTATUS(status))
        return "{}: {}".format(how, lines[-1]) if lines else how


def _base(start: Start) -> _Base:
    order = start.order
    common = tuple(sorted(each for each in start.env.items() if not _is_free(each[0])))
    where = (order.argv[0], _path(order), program.workdir(order))
    return (where, tuple(order.preload), common)


def _is_free(name: bytes) -> bool:
    return name in _FREE or name.startswith(_OWN)


def _path(order: StartTask) -> str:
    """Where the program looks first for modules: sys.path[0]."""
    if order.argv[1] == "-m":
        return os.path.realpath(program.workdir(order))
    return os.path.dirname(os.path.realpath(order.argv[1]))


def _source() -> bytes:
    spec = find_spec("distrun.agent.tasks.preloaded_program")
    assert spec is not None  # noqa: S101 - it is sent with this module
    return str(spec.loader.get_source(spec.name)).encode()  # type: ignore[union-attr]


def _in_memory(name: str, text: bytes) -> int:
    descriptor = os.memfd_create(name)
    os.write(descriptor, text)
    return descriptor


def _cause(why: str) -> Cause:
    return Cause(Code.PRELOAD_FAILED, text=why)
