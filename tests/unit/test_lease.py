"""The lease of an agent, on a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass

from distrun.agent.lease import Lease
from distrun.agent.protocol import heartbeat_interval

LEASE = 12.0


@dataclass
class Clock:
    at: float = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_link_that_is_back_for_a_moment_renews_the_lease() -> None:
    clock = Clock()
    lease = Lease(LEASE, 1.0, clock)
    for _ in range(5):
        # Cut in silence: beats go on into the dead link, until another knocks.
        down_until = clock.at + 4
        while clock.at + max(0.0, lease.until_heartbeat) < down_until:
            clock.at += max(0.0, lease.until_heartbeat)
            lease.heartbeat()
        clock.at = down_until
        lease.on_link_lost()
        assert lease.until_heartbeat <= 0, "the next link may be lost before a heartbeat is due"
        sent_at, heartbeat = clock.at, lease.heartbeat()
        clock.at += heartbeat_interval(LEASE) / 10
        lease.acknowledge(heartbeat.number)
        assert lease.remaining is not None
        assert lease.remaining > LEASE / 2
        # The supervisor counts the whole lease from when it got that heartbeat, so later.
        assert clock.at + lease.remaining < sent_at + LEASE


def test_beats_of_a_link_that_is_no_more_renew_nothing() -> None:
    clock = Clock()
    lease = Lease(LEASE, 1.0, clock)
    clock.at += 5
    heartbeat = lease.heartbeat()
    lease.on_link_lost()
    before = lease.remaining
    lease.acknowledge(heartbeat.number)
    assert lease.remaining == before
