"""How ssh is called, and how a lost link is tried again."""

from __future__ import annotations

import pytest

from distrun.spec.model import SshSpec
from distrun.supervisor.hosts.reconnect import Attempts
from distrun.supervisor.hosts.ssh import ssh_argv

SHARED = SshSpec(options={"ControlPath": "/run/shared-%C"})


def control_paths(*, is_apart: bool) -> list[str]:
    words = ssh_argv("h1", SHARED, 15, 10.0, is_apart=is_apart)
    return [word for word in words if word.startswith("ControlPath=")]


def test_a_connection_apart_is_not_the_shared_one() -> None:
    # Of an option that is given twice ssh takes the first.
    assert control_paths(is_apart=True)[0] == "ControlPath=none"
    assert control_paths(is_apart=False) == ["ControlPath=/run/shared-%C"]


@pytest.mark.parametrize("was_silent", [True, False])
def test_attempts_take_turns_with_the_shared_connection(was_silent: bool) -> None:
    attempts = Attempts(10.0, 60.0)
    attempts.on_loss(was_silent=was_silent)
    seen, pauses = [], []
    for _ in range(7):
        seen.append(attempts.is_apart)
        pauses.append(attempts.on_failure())
    assert seen == [was_silent, not was_silent] * 3 + [was_silent]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    attempts.on_loss(was_silent=True)
    assert attempts.is_apart
    assert attempts.on_failure() == 0.25


@pytest.mark.parametrize("lease", [8.0, 20.0, 60.0])
def test_a_dead_shared_connection_leaves_time_for_another(lease: float) -> None:
    attempts = Attempts(10.0, lease)
    assert attempts.limit <= lease / 3
    attempts.on_failure()
    assert attempts.patience <= lease / 3
    assert attempts.limit > 30
