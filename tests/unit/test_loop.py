"""The loop: calls at a time, descriptors, and what an error leaves; and the queue of events."""

import contextlib
import gc
import os
import resource
import socket
from functools import partial
from pathlib import Path

import pytest

from harness.loops import SimulatedLoop
from harness.parts.agent import Loop
from harness.parts.job import events
from harness.parts.supervisor import Clients, EventQueue
from harness.values import not_none


def test_a_descriptor_that_an_earlier_call_closed_is_not_served() -> None:
    called: list[int] = []
    pipes = [os.pipe() for _ in range(2)]
    silent, _ = unused = os.pipe()

    def on_ready(own: int, other: int) -> None:
        called.append(own)
        loop.unwatch(own)
        loop.unwatch(other)
        os.dup2(silent, other)  # the number is in use again
        loop.watch(other, pytest.fail)

    with contextlib.closing(Loop()) as loop:
        numbers = [reader for reader, _ in pipes]
        for own, other in (numbers, numbers[::-1]):
            loop.watch(own, partial(on_ready, own, other))
        for _, writer in pipes:
            os.write(writer, b"x")
        assert loop.turn(0.0)
        loop.turn(0.0)
    assert len(called) == 1
    for number in (*unused, *numbers, *(writer for _, writer in pipes)):
        os.close(number)


def test_calls_are_made_in_order_of_their_times_and_may_be_moved() -> None:
    loop, called = SimulatedLoop(), list[str]()
    handles = {
        name: loop.call_at(at, partial(called.append, name))
        for name, at in (("b", 2.0), ("a", 1.0), ("later", 3.0), ("cancelled", 1.5), ("c", 9.0))
    }
    handles["unset"] = loop.call_at(None, partial(called.append, "unset"))
    handles["cancelled"].cancel()
    handles["later"].move(5.0)
    handles["c"].move(2.5)
    assert loop.run(4.0) == 3
    assert called == ["a", "b", "c"]
    assert loop.next_call == 5.0
    handles["later"].move_forward(7.0)
    assert loop.next_call == 5.0
    handles["a"].move(4.5)
    handles["c"].move(6.0)
    handles["c"].move(4.5)
    handles["c"].move(6.0)
    loop.run(100.0)
    assert called == ["a", "b", "c", "a", "later", "c"]
    assert loop.next_call is None


def test_a_call_that_schedules_itself_again_leaves_time_for_descriptors() -> None:
    loop, turns = SimulatedLoop(), list[float]()

    def again() -> None:
        turns.append(loop.time)
        handle.move(loop.time)
        other.cancel()

    handle = loop.call_at(0.0, again)
    other = loop.call_at(0.0, pytest.fail)
    for count in range(1, 4):
        loop.turn(0.0)
        assert len(turns) == count


def test_an_error_in_a_call_leaves_the_others() -> None:
    loop, called = SimulatedLoop(), list[str]()
    loop.call_at(1.0, called.pop)
    loop.call_at(2.0, lambda: called.append("other"))
    loop.time = 3.0
    with pytest.raises(IndexError):
        loop.turn(0.0)
    loop.turn(0.0)
    assert called == ["other"]


def test_an_event_waits_for_all_that_follows_from_the_one_before() -> None:
    said: list[str] = []

    def handle(handled: events.Event) -> None:
        said.append(f"begin {handled.at:.0f}")
        if handled.at == 1:
            queue.add(events.TasksActive(at=2))
            queue.call_after(lambda: said.append("after"))
            queue.add(events.TasksActive(at=3))
        said.append(f"end {handled.at:.0f}")

    queue = EventQueue(handle)
    queue.add(events.TasksActive(at=1))
    assert said == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3", "after"]


@pytest.mark.parametrize("left", [0, 1])
def test_a_connection_waits(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.setblocking(False)
    monkeypatch.chdir(tmp_path)  # a short path
    server.bind("s")
    server.listen()
    loop = SimulatedLoop()
    clients = Clients(loop, server, lambda *_: None, lambda *_: None)
    command = socket.socket(socket.AF_UNIX)
    command.connect("s")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests have left may be files
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(left + 1)]
    for each in free:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), before[1]))
    try:
        assert loop.turn(0.0)
        # Otherwise the supervisor would be woken again at once, without end.
        assert not loop.turn(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not_none(loop.next_call) <= 1.0
    loop.call_next()
    loop.turn(0.0)
    assert len(clients._clients) == 1
    clients._clients[0].close()
    loop.close()
    command.close()
    server.close()
