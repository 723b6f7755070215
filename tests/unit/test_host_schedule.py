"""Which hosts have something to do in a turn of the supervisor's loop."""

from __future__ import annotations

from typing import Any

from distrun.supervisor.hosts.host_schedule import HostSchedule


class FakeHost:
    """The part of a host that a schedule asks, and how often it did."""

    def __init__(self, state: str = "up") -> None:
        self.state, self.asked = state, 0

    @property
    def is_connecting(self) -> bool:
        self.asked += 1
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
    hosts = [FakeHost() for _ in range(5)]
    schedule: Any = schedule_of(*hosts)
    assert schedule.connecting == 0
    schedule.note(hosts[3])
    assert schedule.active == [hosts[3]]
    assert schedule.take_active() == [hosts[3]]
    assert [host.asked for host in hosts] == [1, 1, 1, 2, 1]


def test_hosts_that_wait_for_a_connection_and_one_that_is_gone() -> None:
    first, second = FakeHost("waiting"), FakeHost("waiting")
    schedule: Any = schedule_of(first, second)
    assert schedule.unconnected == [first, second]
    first.state = "connecting"
    schedule.note(first)
    assert (schedule.connecting, schedule.unconnected) == (1, [second])
    schedule.remove(second)
    schedule.remove(first)
    assert (schedule.connecting, schedule.unconnected) == (0, [])
    assert schedule.active == []
