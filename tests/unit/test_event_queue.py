"""Events are handled one after another, whoever adds them."""

from __future__ import annotations

import pytest

from distrun.job import events
from distrun.supervisor.event_queue import EventQueue


def event(at: float) -> events.Event:
    return events.TasksActive(at=at)


def test_an_event_waits_for_all_that_follows_from_the_one_before() -> None:
    said: list[str] = []

    def handle(handled: events.Event) -> None:
        said.append(f"begin {handled.at:.0f}")
        if handled.at == 1:
            queue.add(event(2))
            queue.call_after(lambda: said.append("after"))
            queue.add(event(3))
        said.append(f"end {handled.at:.0f}")

    queue = EventQueue(handle)
    queue.add(event(1))
    assert said == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3", "after"]


def test_what_is_called_after_events_sees_the_effect_of_its_own() -> None:
    said: list[float] = []
    queue = EventQueue(lambda handled: said.append(handled.at))

    def add_two() -> None:
        queue.add(event(2))
        assert said[-1] == 2
        queue.call_after(lambda: queue.add(event(4)))
        queue.add(event(3))
        assert said[-1] == 3  # the next call waits until this one has returned

    queue.call_after(add_two)
    assert said == [2, 3, 4]


def test_an_event_may_be_handled_before_the_present_one_is_tried_again() -> None:
    said: list[float] = []

    def handle(handled: events.Event) -> None:
        if handled.at == 1 and not said:
            queue.add_first(event(7), handled)
        said.append(handled.at)

    queue = EventQueue(handle)
    queue.add(event(1))
    assert said == [1, 7, 1]


def test_an_error_in_one_event_does_not_stop_later_ones() -> None:
    said: list[float] = []

    def handle(handled: events.Event) -> None:
        if handled.at == 1:
            raise ValueError("a defect")
        said.append(handled.at)

    queue = EventQueue(handle)
    with pytest.raises(ValueError, match="a defect"):
        queue.add(event(1))
    queue.add(event(2))
    assert said == [2]
