"""A blocking call in a forked child, while the agent's loop continues.

Name resolution, reading files on network disks and running programs may each block forever. The
child sends its result through a pipe; the agent does not wait for a late one.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, NoReturn, Optional

from distrun.agent.linux import processes, syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol import Message, Report
from distrun.agent.protocol.channel import ProtocolError, decode, encode_body
from distrun.agent.tasks import program


class ForkedCall:
    """A child that calls `work` and sends the report that `work` returns.

    Args:
        seconds: how long to wait for the report.
        follow: called with the report; None: the child failed, or took too long.

    Raises OSError if no process can be made.
    """

    def __init__(
        self,
        loop: Loop,
        work: Callable[[], Report],
        seconds: float,
        follow: Callable[[Optional[Message]], object],
    ) -> None:
        agent = os.getpid()
        self.is_late = False
        """Whether it took too long."""
        self._loop, self._follow = loop, follow
        self._received = bytearray()
        pid, self._reader = syscalls.fork_with_pipe()
        if pid == 0:
            _run(work, self._reader, agent)
        os.set_blocking(self._reader, False)
        self._process = processes.find(pid)
        loop.watch(self._reader, self._read)
        self._deadline = loop.call_at(loop.now() + seconds, self._give_up)

    def _read(self) -> None:
        while True:
            try:
                block = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return
            if not block:
                break
            self._received += block
        self._finish()

    def _give_up(self) -> None:
        self.is_late = True
        self._finish()

    def _finish(self) -> None:
        self.close()
        try:
            found: Optional[Message] = decode(bytes(self._received))[1]
        except ProtocolError:
            found = None
        self._follow(found)

    def close(self) -> None:
        """Kill the child if it is still running. Nothing follows any more."""
        self._deadline.cancel()
        self._loop.unwatch(self._reader)
        os.close(self._reader)
        if self._process is None:
            return
        found = list(processes.tree(self._process.pid))
        if found and found[0].started == self._process.started:
            for process in found:
                processes.send(process, signal.SIGKILL)


def _run(work: Callable[[], Report], writer: int, agent: int) -> NoReturn:
    try:
        syscalls.die_with_parent(agent, signal.SIGKILL)
        program.default_signals()
        _close_all_but(writer)
        block = encode_body(work())
        while block:
            block = block[os.write(writer, block) :]
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        text = "distrun: a forked call failed: {!r}\n".format(error)
        os.write(2, text.encode("ascii", "backslashreplace"))
    finally:
        os._exit(0)


def _close_all_but(writer: int) -> None:
    """Close all descriptors, also the link: its end must show that the agent has ended."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
