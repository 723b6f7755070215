"""The checks of a job's program beside its launch, in a process of their own.

An interpreter that answers slowly, or a large program, then delays no output. The process ends with
the launch, and ends what it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from distrun.agent.linux import syscalls
from distrun.agent.protocol import Cause
from distrun.cli.spec_warnings import find_warnings, refuse_if
from distrun.codec import from_json, to_json
from distrun.errors import HostError
from distrun.spec.model import Spec
from distrun.spec.problems import Mark, Problem
from distrun.supervisor import guard
from distrun.supervisor.forked_process import ForkedProcess

_BLOCK = 1 << 16
_DEFECT = 70
_END_OR_EXIT = (signal.SIGTERM, signal.SIGCHLD)
_REFUSAL_SECONDS = 2.0
"""How long a launch waits for the checks of a program in Python, which take some 50 ms."""


class ProgramCheck:
    """Finds warnings, or with another `find` something else. Close it: that ends the process."""

    def __init__(self, spec: Spec, find: Callable[[Spec], object] = find_warnings) -> None:
        self._answer = b""
        self._descriptor, writer = os.pipe()
        os.set_blocking(self._descriptor, False)
        self._started = time.monotonic()
        parent = os.getpid()

        def enter() -> None:
            os.setsid()
            guard.become_guard(parent)

        def run() -> NoReturn:
            signal.pthread_sigmask(signal.SIG_BLOCK, _END_OR_EXIT)
            try:
                checker = os.fork()
            except OSError:  # a limit on processes: without an answer, nothing was checked
                os._exit(_DEFECT)
            if not checker:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_OR_EXIT)
                _send(writer, to_json(find(spec)))
                os._exit(0)
            os.close(writer)
            while os.waitpid(checker, os.WNOHANG) == (0, 0):
                if signal.sigwait(_END_OR_EXIT) == signal.SIGTERM:
                    break
            guard.end_processes(0.0)
            os._exit(0)

        try:
            self._process = ForkedProcess(
                run, enter=enter, name="distrun: checks", kept=(writer,), exit_code=_DEFECT
            )
        except BaseException:
            os.close(self._descriptor)
            raise
        finally:
            os.close(writer)

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self._descriptor, _BLOCK):
                self._answer += block
            return True
        return False

    def wait(self, seconds: float | None = None) -> bool:
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.read():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            syscalls.wait_until_ready([self._descriptor], (), left)
        return True

    @property
    def answer(self) -> Any:
        """What the process has found, once it has ended; None: nothing, or it has ended early."""
        with contextlib.suppress(ValueError):
            return json.loads(self._answer)
        return None

    @property
    def warnings(self) -> tuple[Problem, ...]:
        if (found := self.answer) is not None:
            return tuple(from_json(Problem, each) for each in found)
        why = "not checked: the process that checks it has ended early"
        return (Mark("program").problem(why),)

    def warnings_within(self, seconds: float) -> tuple[Problem, ...]:
        """What was found if the checks end so soon after their start; else that they have not."""
        if self.wait(max(0.0, self._started + seconds - time.monotonic())):
            return self.warnings
        why = "not checked: the checks had not ended when the job had started, or had ended"
        return (Mark("program").problem(why),)

    def refuse(self, *, strict: bool) -> None:
        """Refuse a program that fails as soon as it starts, if the checks find that soon enough.

        Raises:
            InvalidSpecError: it certainly fails; or there is any warning, and `strict` is set.
        """
        found = self.warnings if self.wait(None if strict else _REFUSAL_SECONDS) else ()
        refuse_if(found, strict=strict, force=False)

    def exit_descriptor(self) -> int:
        """Return a descriptor that is readable when the process has ended, and is not reaped.

        Raises:
            OSError: it is reaped; or Linux is older than 5.3.
        """
        return os.pidfd_open(self._process.pid)

    def reap(self) -> None:
        self._process.poll()

    def close(self) -> None:
        """End the checks, without waiting for that."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)


def require_keras_2(spec: Spec) -> None:
    """Check that this machine has tf_keras if `program.keras` is 2.

    Raises:
        HostError: its interpreter has none.
    """
    if spec.program.keras != 2:
        return
    with contextlib.closing(ProgramCheck(spec, _find_keras)) as check:
        check.wait()
    if check.answer is not None:
        raise HostError(cause=from_json(Cause, check.answer))


def _send(descriptor: int, answer: object) -> None:
    # It is written when it is closed.
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(answer).encode())


def _find_keras(spec: Spec) -> Cause | None:
    from distrun.spec.asked_interpreter import find_missing_keras_2

    try:
        return find_missing_keras_2(spec)
    except Exception:  # noqa: BLE001 - the other checks say so
        return None
