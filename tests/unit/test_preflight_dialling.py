"""Which hosts the preflight has dial which others."""

from __future__ import annotations

from collections import Counter

import pytest

from distrun.supervisor.probe import dialled_by


def dialled(count: int) -> dict[str, set[str]]:
    hosts = [f"h{number}" for number in range(count)]
    return {host: set(dialled_by(host, hosts)) for host in hosts}


@pytest.mark.parametrize("count", [1, 2, 32])
def test_each_of_a_few_hosts_dials_all(count: int) -> None:
    found = dialled(count)
    assert all(others == found.keys() for others in found.values())


@pytest.mark.parametrize("count", [33, 64, 100, 1000])
def test_of_many_hosts_each_is_dialled_by_several_others_and_the_first_by_all(count: int) -> None:
    found = dialled(count)
    assert all("h0" in others and host in others for host, others in found.items())
    callers = Counter(other for host, others in found.items() for other in others if other != host)
    assert min(callers[host] for host in found) >= 5
    assert sum(callers.values()) <= count * (count.bit_length() + 1)
    assert max(callers[host] for host in found if host != "h0") <= count.bit_length()
