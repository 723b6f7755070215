"""Ending descendants a round at a time: :class:`distrun.agent.linux.processes.Ending`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from distrun.agent.linux import processes


class Kernel:
    """Children of this process, some of which never die."""

    def __init__(self, *immortal: int) -> None:
        self.now = 0.0
        self.immortal = set(immortal)
        self.sent: list[tuple[int, int]] = []

    def clock(self) -> float:
        return self.now

    def tree(self, pid: int) -> Iterator[processes.Process]:
        yield processes.Process(pid, 1, pid, pid, 7, "D", 0, 0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(11, 12)

    def children_but(excluded: object) -> list[int]:
        return [pid for pid in made.immortal if pid not in excluded]  # type: ignore[operator]

    monkeypatch.setattr(processes, "reap", lambda excluded: bool(children_but(excluded)))
    monkeypatch.setattr(processes, "children", lambda _pid: sorted(made.immortal))
    monkeypatch.setattr(processes, "tree", made.tree)
    monkeypatch.setattr(
        processes, "send", lambda process, signum: made.sent.append((process.pid, signum))
    )
    return made


def test_an_ending_is_over_at_once_if_only_excluded_children_live(kernel: Kernel) -> None:
    excluded = {11}
    ending = processes.Ending(1.0, excluded, kernel.clock, patience=10.0)
    assert not ending.step()
    excluded.add(12)  # a client that was started meanwhile
    assert ending.step()
    assert ending.left == []
    assert {pid for pid, _ in kernel.sent} == {12}


def test_what_a_child_leaves_that_dies_while_children_are_reaped_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel gives its children to this process after they could be listed."""
    lists = [[1], [2]]
    monkeypatch.setattr(processes, "children", lambda _pid: lists.pop(0))
    monkeypatch.setattr(os, "waitpid", lambda pid, _options: (1 if pid == 1 else 0, 0))
    assert processes.reap()
