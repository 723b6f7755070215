"""How ssh is called, and how a lost link is tried again."""

from __future__ import annotations

import pytest

from distrun.spec.model import SshSpec
from distrun.supervisor.hosts.reconnect import ReconnectPolicy
from distrun.supervisor.hosts.ssh_command import link_command

SHARED = SshSpec(options={"ControlPath": "/run/shared-%C"})


def control_paths(*, is_separate: bool) -> list[str]:
    words = link_command("h1", SHARED, 15, 10.0, is_separate=is_separate)
    return [word for word in words if word.startswith("ControlPath=")]


def test_a_connection_separate_is_not_the_shared_one() -> None:
    # Of an option that is given twice ssh takes the first.
    assert control_paths(is_separate=True)[0] == "ControlPath=none"
    assert control_paths(is_separate=False) == ["ControlPath=/run/shared-%C"]


def test_options_that_a_link_depends_on_win_over_those_of_the_spec() -> None:
    needed = {
        "BatchMode": "yes",
        "RequestTTY": "no",
        "EscapeChar": "none",
        "RemoteCommand": "none",
        "ClearAllForwardings": "yes",
        "ControlMaster": "no",
    }
    words = link_command("h1", SshSpec(options=dict.fromkeys(needed, "other")), 15, 10.0)
    found = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-o"]
    first = {name: value for name, _, value in reversed(found)}
    assert {name: first[name] for name in needed} == needed


@pytest.mark.parametrize("was_silent", [True, False])
def test_attempts_take_turns_with_the_shared_connection(was_silent: bool) -> None:
    policy = ReconnectPolicy(10.0, 60.0)
    policy.record_loss(lasted=60.0, was_silent=was_silent)
    seen, pauses = [], []
    for _ in range(7):
        seen.append(policy.next_attempt.is_separate)
        pauses.append(policy.record_failure())
    assert seen == [was_silent, not was_silent] * 3 + [was_silent]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    policy.record_loss(lasted=60.0, was_silent=True)
    assert policy.next_attempt.is_separate
    assert policy.record_failure() == 0.25


@pytest.mark.parametrize("lease", [8.0, 20.0, 60.0])
def test_a_dead_shared_connection_leaves_time_for_another(lease: float) -> None:
    policy = ReconnectPolicy(10.0, lease)
    assert policy.next_attempt.timeout <= lease / 3
    policy.record_failure()
    assert policy.next_attempt.connect_timeout <= lease / 3
    assert policy.next_attempt.timeout > 30
