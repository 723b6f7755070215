"""What the agent takes in of what tasks say of themselves."""

import itertools
import socket

from distrun.agent.tasks.notify import NotifySocket


def test_a_task_that_never_stops_talking_is_not_listened_to_for_ever() -> None:
    # A real sender cannot be relied upon to be always faster than the agent.
    class Endless(socket.socket):
        def __init__(self) -> None:
            self.steps = itertools.count(1)

        def recv(self, _size: int, _flags: int = 0) -> bytes:
            step = next(self.steps)
            assert step < 100_000, "the agent would never turn to its other tasks"
            return b"STEP=%d" % step

    notify = NotifySocket("worker:0")
    notify.close()
    notify._socket = Endless()
    first, second = notify.receive(), notify.receive()
    assert 0 < int(first["STEP"]) < int(second["STEP"])
