"""The stacks of the tasks' Python threads, by py-spy, which reads their memory from outside."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
import zlib
from typing import Any, Callable, Dict, List, Union

from distrun.agent.files.blob_cache import BlobCache
from distrun.agent.linux import processes
from distrun.agent.linux.forked_call import ForkedCall, report_call
from distrun.agent.linux.regular import open_regular
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Message, Order, Report
from distrun.agent.protocol.stack_messages import (
    DumpStacks,
    ProgramData,
    ProgramRequested,
    StacksDumped,
)
from distrun.agent.tasks import profile

_SECONDS = 15.0
"""How long reading all tasks of this host may take."""
_SECONDS_EACH = 5.0
_MOST_PROCESSES = 16
"""How many processes of each task are read: those that were started first."""
_MOST_THREADS = 256
_MOST_FRAMES = 100
_LONGEST_NAME = 300
_MOST_BYTES = 1 << 20
_BLOCK = 1 << 20


class StackDumper:
    """Runs the program in a child, while the agent's loop continues.

    Args:
        pids_of: returns the ids of a task's processes, its first one first.
        cache: a folder for the program, so that it is sent once; '': none is sent.
    """

    def __init__(
        self,
        loop: Loop,
        report: Callable[[Report], None],
        pids_of: Callable[[str], List[int]],
        cache: str,
    ) -> None:
        self._loop, self._report, self._pids_of = loop, report, pids_of
        self._cache = BlobCache(os.fsencode(cache))
        self._waiting: List[DumpStacks] = []
        """The orders that wait for the program."""
        self._received = bytearray()
        self._calls: Dict[int, ForkedCall] = {}

    def execute(self, order: Order) -> None:
        if isinstance(order, ProgramData):
            self._received += order.data
            if order.last:
                self._use_received()
        elif isinstance(order, DumpStacks) and not order.tasks:
            self._waiting = [each for each in self._waiting if each.number != order.number]
            if order.number in self._calls:
                self._calls.pop(order.number).close()
        elif isinstance(order, DumpStacks):
            is_here = order.program or not order.digest
            if is_here or self._cache.has(order.digest, order.size):
                self._start(order)
                return
            self._waiting.append(order)
            if self._waiting == [order]:
                self._report(ProgramRequested(order.digest))

    def _use_received(self) -> None:
        block, self._received = bytes(self._received), bytearray()
        waiting, self._waiting = self._waiting, []
        try:
            program = zlib.decompress(block)
        except zlib.error:
            program = b""
        for order in waiting:
            if hashlib.sha256(program).hexdigest() == order.digest:
                self._cache.store(order.digest, program)
                self._start(order)
            else:
                self._report(StacksDumped(order.number, ""))

    def _start(self, order: DumpStacks) -> None:
        pids = {task: self._pids_of(task)[:_MOST_PROCESSES] for task in order.tasks}
        due = time.monotonic() + _SECONDS
        program = order.program or (self._cache.path(order.digest) if order.digest else "")
        nothing = StacksDumped(order.number, "")

        def follow(answer: Union[Message, Cause]) -> None:
            del self._calls[order.number]
            self._report(answer if isinstance(answer, StacksDumped) else nothing)

        def work() -> StacksDumped:
            return _dump(order, program, pids, due)

        seconds = _SECONDS + 1 + order.seconds
        self._calls[order.number] = report_call(self._loop, work, seconds, follow)

    def close(self) -> None:
        for call in self._calls.values():
            call.close()
        self._calls.clear()


def _in_memory(path: Union[str, bytes]) -> int:
    """A descriptor of a program that can be executed, also if its file system forbids that."""
    memory = os.memfd_create("py-spy", 0)
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        while block := file.read(_BLOCK):
            os.write(memory, block)
    return memory


def _dump(
    order: DumpStacks, path: Union[str, bytes], pids: Dict[str, List[int]], due: float
) -> StacksDumped:
    found: List[Dict[str, Any]] = []
    program = _in_memory(path) if path else None
    if order.seconds or program is None:
        found = profile.record(program, pids, order.seconds, _MOST_BYTES)
        return StacksDumped(order.number, json.dumps(found))
    size = 0
    for task, ids in pids.items():
        for pid in ids:
            left = min(_SECONDS_EACH, due - time.monotonic())
            if left <= 0 or size > _MOST_BYTES:
                found.append({"task": task, "pid": pid, "error": "there was no time left"})
                continue
            answer = _dump_process(program, pid, left, ["--native"] if order.native else [])
            if "error" in answer:  # a suspended process cannot be paused
                again = _dump_process(program, pid, left, ["--nonblocking"])
                if "error" not in again:
                    answer = again
                elif processes.find(pid) is None:
                    continue  # it has ended meanwhile
            each = {"task": task, "pid": pid, **answer, **profile.suspension(pid)}
            size += len(json.dumps(each))
            found.append(each)
    return StacksDumped(order.number, json.dumps(found))


def _dump_process(program: int, pid: int, seconds: float, options: List[str]) -> Dict[str, Any]:
    command = ["/proc/self/fd/{}".format(program), "dump", "--json", "--full-filenames"]
    command += ["--pid", str(pid), *options]
    process = processes.find(pid)
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=seconds, check=False, pass_fds=[program]
        )
    except subprocess.TimeoutExpired:
        # Killed while it was pausing the process, it may have left it suspended.
        if process is not None and not process.is_suspended:
            processes.send(process, signal.SIGCONT)
        return {"error": "py-spy took longer than {:.0f} s".format(seconds)}
    except OSError as error:
        return {"error": "py-spy cannot be executed: {}".format(error.strerror)}
    try:
        threads = json.loads(done.stdout)
        return {"threads": [_thread(each, pid) for each in threads[:_MOST_THREADS]]}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        why = profile.reason(done.stderr or done.stdout) or "py-spy printed nothing"
        return {"error": why[:_LONGEST_NAME]}


def _thread(thread: Dict[str, Any], pid: int) -> Dict[str, Any]:
    return {
        "name": str(thread["thread_name"] or "")[:_LONGEST_NAME],
        "is_main": thread["os_thread_id"] == pid,
        "holds_gil": bool(thread["owns_gil"]),
        "frames": [
            [str(each["name"])[:_LONGEST_NAME], str(each["filename"])[:1000], int(each["line"])]
            for each in thread["frames"][:_MOST_FRAMES]
        ],
    }
