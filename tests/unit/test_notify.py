"""The agent's receipt of the progress that tasks report."""

import contextlib
import itertools
import socket

from distrun.agent.tasks.notify import NotifySocket


def test_a_task_that_reports_without_end_does_not_stop_the_agent() -> None:
    # A real sender is not always faster than the agent.
    class Endless(socket.socket):
        steps = itertools.count(1)

        def recv(self, _size: int, _flags: int = 0) -> bytes:
            step = next(self.steps)
            assert step < 100_000, "the agent would never turn to its other tasks"
            return b"STEP=%d" % step

    with contextlib.closing(NotifySocket("worker:0", Endless)) as notify:
        first, second = notify.receive(), notify.receive()
    assert 0 < int(first["STEP"]) < int(second["STEP"])
