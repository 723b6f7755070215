"""Work that may block, done by a forked child while the agent's loop goes on.

Names are looked up, files on other machines' disks read and programs asked: each may take for
ever. The child's answer comes by a pipe; one that is late is not waited for.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable, NoReturn, Optional

from distrun.agent.linux import processes, syscalls
from distrun.agent.tasks import program


class ForkedCall:
    """A child that does `work` and sends back the fields of the message it returns.

    Register :meth:`fileno` with a selector and call :meth:`read` when it is readable.

    Args:
        due: until when to wait for it, by the agent's clock.
    """

    def __init__(self, work: Callable[[], Any], due: float) -> None:
        agent = os.getpid()
        self.due = due
        self._reader, writer = os.pipe()
        self._answer = bytearray()
        pid = os.fork()
        if pid == 0:
            _run(work, writer, agent)
        os.close(writer)
        os.set_blocking(self._reader, False)
        self._process = processes.look(pid)

    def fileno(self) -> int:
        return self._reader

    def read(self) -> bool:
        """Take what has come; whether that is all."""
        while True:
            try:
                block = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return False
            if not block:
                return True
            self._answer += block

    def answer(self) -> Optional[Any]:
        """The fields that came back, by name; None where the child failed."""
        try:
            return json.loads(bytes(self._answer))
        except ValueError:
            return None

    def close(self) -> None:
        """Let go of it; a child that still works is ended."""
        os.close(self._reader)
        if self._process is None:
            return
        found = list(processes.tree(self._process.pid))
        if found and found[0].started == self._process.started:
            for process in found:
                processes.send(process, signal.SIGKILL)


def _run(work: Callable[[], Any], writer: int, agent: int) -> NoReturn:
    try:
        syscalls.die_with_parent(agent, signal.SIGKILL)
        program.default_signals()
        _close_all_but(writer)
        block = json.dumps(work()._asdict()).encode("ascii")
        while block:
            block = block[os.write(writer, block) :]
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        os.write(2, "an errand failed: {!r}\n".format(error).encode("ascii", "backslashreplace"))
    finally:
        os._exit(0)


def _close_all_but(writer: int) -> None:
    """The link among them: it has ended when the agent has."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
