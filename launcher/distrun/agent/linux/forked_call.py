"""A blocking call in a forked child, while this process's loop continues."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from functools import partial
from typing import Callable, Collection, NoReturn, Optional, Union

from distrun.agent.linux import processes, syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Message
from distrun.agent.protocol.channel import ProtocolError, decode, encode_body

_BLOCK = 1 << 16


class ForkedCall:
    """A child that calls `work` and sends what `work` returns.

    `follow` is called with it, or, after so many seconds, with the cause why there is none. Of this
    process's descriptors, the child has the standard streams and those `kept`.
    """

    def __init__(
        self,
        loop: Loop,
        work: Callable[[], bytes],
        seconds: float,
        follow: Callable[[Union[bytes, Cause]], object],
        kept: Collection[int] = (),
    ) -> None:
        parent = os.getpid()
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
                _run(work, self._reader, parent, kept)
            os.set_blocking(self._reader, False)
            self._process = processes.find(pid)
            loop.watch(self._reader, partial(self._read, self._reader))
        self._deadline = loop.call_at(loop.now() + seconds, partial(self._finish, failure))

    @property
    def pid(self) -> Optional[int]:
        """The id of the child; None: it is not needed any more."""
        return self._process.pid if self._process is not None and self._reader is not None else None

    def _read(self, reader: int) -> None:
        while True:
            try:
                block = os.read(reader, _BLOCK)
            except BlockingIOError:
                return
            if not block:
                break
            self._received += block
        self._finish(bytes(self._received) or Cause(Code.PROBE_DIED))

    def _finish(self, found: Union[bytes, Cause]) -> None:
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


def report_call(
    loop: Loop,
    work: Callable[[], Message],
    seconds: float,
    follow: Callable[[Union[Message, Cause]], object],
) -> ForkedCall:
    """A call whose answer is a message."""

    def follow_message(found: Union[bytes, Cause]) -> None:
        answer: Union[Message, Cause] = Cause(Code.PROBE_DIED)
        if isinstance(found, Cause):
            answer = found
        else:
            with contextlib.suppress(ProtocolError):
                answer = decode(found)[1]
        follow(answer)

    return ForkedCall(loop, lambda: encode_body(work()), seconds, follow_message)


def _run(work: Callable[[], bytes], writer: int, parent: int, kept: Collection[int]) -> NoReturn:
    try:
        syscalls.die_with_parent(parent, signal.SIGKILL)
        syscalls.reset_signals(())
        # Also the link: its end must show that the parent has ended.
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2 and descriptor != writer and descriptor not in kept:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        block = work()
        while block:
            block = block[os.write(writer, block) :]
    except BaseException:  # noqa: BLE001 - a forked child must never return
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        os._exit(0)
