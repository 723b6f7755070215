"""A question to other programs, such as `ssh -G`, that may take seconds: a fork asks it.

The loop goes on meanwhile: it has heartbeats to answer, on which the leases of all hosts depend.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause
from distrun.forked_process import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 15.0
"""How long an answer is waited for."""
_BLOCK = 64 * 1024


class Inquiry:
    """A function that runs in a fork of this process, and its answer.

    Args:
        ask: finds out the cause of something.
        on_answer: is called with that from the loop; None: it was not found out in time.
        job_id: for the variables of the fork.

    Raises:
        OSError: there can be no further process.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        ask: Callable[[], Cause],
        on_answer: Callable[[Cause | None], None],
        job_id: str,
    ) -> None:
        self._selector = selector
        self._on_answer = on_answer
        self._answer = b""
        self.due = time.monotonic() + _SECONDS
        """When to call :meth:`give_up`."""
        self._reader, writer = os.pipe()
        try:
            self._process = ForkedProcess(
                partial(_run, ask, writer),
                enter=partial(_enter, os.getpid()),
                name=f"distrun: diagnosis of {job_id}",
                job_id=job_id,
                kept=writer,
                exit_code=0,
            )
        except OSError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self.pid: int = self._process.pid
        selector.register(self._reader, selectors.EVENT_READ, self._on_readable)

    def give_up(self) -> None:
        """End it without an answer."""
        self._answer = b""
        self._finish()

    def close(self) -> None:
        """End it; nobody needs the answer."""
        self._selector.unregister(self._reader)
        os.close(self._reader)
        with contextlib.suppress(OSError):  # it has ended; nobody has reaped it yet
            os.killpg(self.pid, signal.SIGKILL)

    def _on_readable(self) -> None:
        block = os.read(self._reader, _BLOCK)
        self._answer += block
        if not block:
            self._finish()

    def _finish(self) -> None:
        self.close()
        cause = None
        with contextlib.suppress(ValueError, TypeError, LookupError):
            cause = Cause.from_json(json.loads(self._answer))
        self._on_answer(cause)


def has_threads() -> bool:
    """Return whether this process must not be forked: it has threads, as those of a display."""
    return threading.active_count() > 1


def _enter(parent: int) -> None:
    os.setsid()  # so that what it starts can be ended with it
    syscalls.die_with_parent(parent, signal.SIGKILL)


def _run(ask: Callable[[], Cause], writer: int) -> NoReturn:
    with open(writer, "wb") as file:
        file.write(json.dumps(ask().to_json()).encode())
    os._exit(0)
