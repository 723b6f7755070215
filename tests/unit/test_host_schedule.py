"""Which hosts have something to do in a turn of the supervisor's loop."""

from __future__ import annotations

from typing import Any

from distrun.supervisor.hosts.host_schedule import HostSchedule


class FakeHost:
    """The part of a host that a schedule asks, and how often it did."""

    def __init__(self, due: float | None = None, state: str = "up") -> None:
        self.due, self.state, self.asked = due, state, 0

    @property
    def next_due(self) -> float | None:
        self.asked += 1
        return self.due

    @property
    def is_connecting(self) -> bool:
        return self.state == "connecting"

    @property
    def is_unconnected(self) -> bool:
        return self.state == "waiting"


def schedule_of(*hosts: Any) -> HostSchedule:
    schedule = HostSchedule()
    for host in hosts:
        schedule.note(host)
    schedule.take_active()
    return schedule


def test_only_hosts_that_were_noted_are_asked() -> None:
    hosts = [FakeHost(float(number)) for number in range(5)]
    schedule: Any = schedule_of(*hosts)
    assert [schedule.next_due, schedule.next_due] == [0.0, 0.0]
    hosts[3].due = -1.0
    schedule.note(hosts[3])
    assert schedule.active == [hosts[3]]
    assert schedule.next_due == -1.0
    assert schedule.take_active() == [hosts[3]]
    assert [host.asked for host in hosts] == [1, 1, 1, 3, 1]


def test_deadlines_that_have_passed_and_that_have_changed() -> None:
    early, late, never = FakeHost(1.0), FakeHost(2.0), FakeHost()
    schedule: Any = schedule_of(early, late, never)
    late.due = 5.0
    schedule.note(late)
    assert schedule.next_due == 1.0
    assert schedule.pop_due(3.0) == [early]
    assert schedule.active == [late, early]
    assert schedule.next_due == 1.0, "it has the same deadline still"
    early.due = None
    schedule.note(early)
    assert schedule.next_due == 5.0
    late.due = 2.0
    schedule.note(late)
    late.due = 5.0
    schedule.note(late)
    assert schedule.pop_due(9.0) == [late]


def test_hosts_that_wait_for_a_connection_and_one_that_is_gone() -> None:
    first, second = FakeHost(state="waiting"), FakeHost(7.0, state="waiting")
    schedule: Any = schedule_of(first, second)
    assert schedule.unconnected == [first, second]
    first.state = "connecting"
    schedule.note(first)
    assert (schedule.connecting, schedule.unconnected) == (1, [second])
    schedule.remove(second)
    schedule.remove(first)
    assert (schedule.connecting, schedule.unconnected, schedule.next_due) == (0, [], None)
    assert schedule.active == []
