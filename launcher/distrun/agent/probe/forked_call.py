"""A blocking call in a forked child, while the agent's loop continues."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import partial
from typing import Callable, NoReturn, Optional, Union

from distrun.agent.linux import processes, syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Message, Report
from distrun.agent.protocol.channel import ProtocolError, decode, encode_body
from distrun.agent.tasks import program


class ForkedCall:
    """A child that calls `work` and sends the report that `work` returns.

    `follow` is called with it, or, after so many seconds, with the cause why there is none.
    """

    def __init__(
        self,
        loop: Loop,
        work: Callable[[], Report],
        seconds: float,
        follow: Callable[[Union[Message, Cause]], object],
    ) -> None:
        agent = os.getpid()
        self._loop, self._follow = loop, follow
        self._received = bytearray()
        self._reader: Optional[int] = None
        self._process: Optional[processes.Process] = None
        failure = Cause(Code.PROBE_TIMED_OUT)
        try:
            pid, self._reader = syscalls.fork_with_pipe()
        except OSError as error:
            failure, seconds = Cause(Code.PROBE_NOT_STARTED, errno=error.errno or 0), 0.0
        else:
            if pid == 0:
                _run(work, self._reader, agent)
            os.set_blocking(self._reader, False)
            self._process = processes.find(pid)
            loop.watch(self._reader, partial(self._read, self._reader))
        self._deadline = loop.call_at(loop.now() + seconds, partial(self._finish, failure))

    def _read(self, reader: int) -> None:
        while True:
            try:
                block = os.read(reader, 1 << 16)
            except BlockingIOError:
                return
            if not block:
                break
            self._received += block
        found: Union[Message, Cause] = Cause(Code.PROBE_DIED)
        with contextlib.suppress(ProtocolError):
            found = decode(bytes(self._received))[1]
        self._finish(found)

    def _finish(self, found: Union[Message, Cause]) -> None:
        self.close()
        self._follow(found)

    def close(self) -> None:
        """Kill the child if it is still running, and do not wait. Nothing follows any more."""
        self._deadline.cancel()
        if self._reader is not None:
            self._loop.unwatch(self._reader)
            os.close(self._reader)
            self._reader = None
        child = self._process
        if child is None or not processes.exists(child):
            return
        for process in list(processes.tree(child.pid)):
            processes.send(process, signal.SIGKILL)
        processes.reap(lambda pid: pid != child.pid)

    def wait(self, seconds: float) -> None:
        """Wait in another child until this one has ended, which is late where a disk is slow."""
        due, child = time.monotonic() + seconds, self._process
        while child is not None and processes.is_alive(child) and time.monotonic() < due:
            time.sleep(processes.KILL_INTERVAL)


def _run(work: Callable[[], Report], writer: int, agent: int) -> NoReturn:
    try:
        syscalls.die_with_parent(agent, signal.SIGKILL)
        program.default_signals()
        # Also the link: its end must show that the agent has ended.
        os.closerange(3, writer)
        os.closerange(writer + 1, 1 + max(map(int, os.listdir("/proc/self/fd"))))
        block = encode_body(work())
        while block:
            block = block[os.write(writer, block) :]
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        text = "distrun: a forked call failed: {!r}\n".format(error)
        os.write(2, text.encode("ascii", "backslashreplace"))
    finally:
        os._exit(0)
