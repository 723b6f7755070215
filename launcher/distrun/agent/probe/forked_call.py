"""A blocking call in a forked child, while the agent's loop continues.

Name resolution, reading files on network disks and running programs may each block forever. The
child sends its result through a pipe; the agent does not wait for a late one.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, NoReturn, Optional

from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol import Message, Report
from distrun.agent.protocol.channel import ProtocolError, decode, encode_body
from distrun.agent.tasks import program


class ForkedCall:
    """A child that calls `work` and sends the report that `work` returns.

    Register :meth:`fileno` with a selector and call :meth:`read` when it is readable.

    Args:
        due: when to stop waiting for the report, on the monotonic clock.

    Raises OSError if no process can be made.
    """

    def __init__(self, work: Callable[[], Report], due: float) -> None:
        agent = os.getpid()
        self.due = due
        self._received = bytearray()
        pid, pipe = syscalls.fork_with_pipe()
        if pid == 0:
            _run(work, pipe, agent)
        self.pid, self._reader = pid, pipe
        os.set_blocking(pipe, False)
        self._process = processes.find(pid)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> bool:
        """Read the bytes that have arrived. True at the end of the result."""
        while True:
            try:
                block = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return False
            if not block:
                return True
            self._received += block

    def result(self) -> Optional[Message]:
        """The report that `work` returned; None if the child failed or has not finished."""
        try:
            return decode(bytes(self._received))[1]
        except ProtocolError:
            return None

    def close(self) -> None:
        """Close the pipe, and kill the child if it is still running."""
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
