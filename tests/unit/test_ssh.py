"""How ssh is called, how a lost link is tried again, and the lease of an agent."""

import os
import signal
import subprocess
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest

from harness.command import write_program
from harness.parts.agent import Lease, Loop
from harness.parts.hosts import MAX_CONNECTING, Link, Links, LinkState, link_command
from harness.parts.protocol import Cause, CauseError, Code, heartbeat_interval
from harness.parts.settings import SshSpec
from harness.parts.spec import machine
from harness.values import not_none

SHARED = SshSpec(options={"ControlPath": "/run/shared-%C"})


def control_paths(*, is_separate: bool) -> list[str]:
    words = link_command("h1", SHARED, 15, 10.0, is_separate=is_separate)
    return [word for word in words if word.startswith("ControlPath=")]


def test_a_connection_separate_is_not_the_shared_one() -> None:
    # Of an option that is given twice ssh takes the first.
    assert control_paths(is_separate=True)[0] == "ControlPath=none"
    assert control_paths(is_separate=False) == ["ControlPath=/run/shared-%C"]


@pytest.mark.parametrize(("host", "is_given"), [("gpu1", True), ("admin@gpu1", False)])
def test_a_user_before_the_host_wins_over_that_of_the_spec(host: str, *, is_given: bool) -> None:
    assert ("-l" in link_command(host, SshSpec(user="me"), 15, 10.0)) is is_given


def test_options_that_a_link_depends_on_win_over_those_of_the_spec() -> None:
    needed = {
        "BatchMode": "yes", "RequestTTY": "no", "EscapeChar": "none", "RemoteCommand": "none",
        "ClearAllForwardings": "yes", "ControlMaster": "no",
    }  # fmt: skip
    words = link_command("h1", SshSpec(options=dict.fromkeys(needed, "other")), 15, 10.0)
    found = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-o"]
    first = {name: value for name, _, value in reversed(found)}
    assert {name: first[name] for name in needed} == needed


def test_an_undying_ssh_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "ssh", f"#!/bin/sh\necho $$ > '{tmp_path}/pid'\nexec sleep 600\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(machine, "_SSH_SECONDS", 0.5)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
    assert machine.ssh_options("h1", []) == {}
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fail(_: object) -> NoReturn:
    raise CauseError(Cause(Code.SSH_NOT_STARTED))


def link(lease: float | None) -> Link:
    user: Any = types.SimpleNamespace(log_in=fail, on_not_started=bool)
    return Link(Links(Loop(lambda: 1000.0), "job-1"), user, 10.0, lease, LinkState.LOST)


def attempt(lost: Link) -> float:
    lost.log_in()
    return not_none(lost._expiry.when) - 1000.0


def lose(lost: Link, *, was_silent: bool) -> None:
    """Lose it after it was up for long."""
    lost.state = LinkState.UP
    lost.lose(was_silent=was_silent)


def retry(lost: Link) -> float:
    """Have an attempt fail; returns the seconds until the next one."""
    lost.retry()
    return not_none(lost._expiry.when) - 1000.0


def test_only_some_hosts_log_in_at_the_same_time() -> None:
    user, links = mock.Mock(**{"log_in.side_effect": fail}), Links(Loop(), "job-1")
    for _ in range(MAX_CONNECTING + 9):
        Link(links, user, 1.0, None).connect()
    links.loop.turn(0.0)
    assert user.log_in.call_count == MAX_CONNECTING


@pytest.mark.parametrize("was_silent", [True, False])
def test_attempts_take_turns_with_the_shared_connection(was_silent: bool) -> None:
    lost = link(60.0)
    lose(lost, was_silent=was_silent)
    seen, pauses = [], []
    for _ in range(7):
        seen.append(lost.next_attempt.is_separate)
        pauses.append(retry(lost))
    assert seen == [was_silent, not was_silent] * 3 + [was_silent]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    lose(lost, was_silent=True)
    assert lost.next_attempt.is_separate
    assert retry(lost) == 0.25


@pytest.mark.parametrize("lease", [8.0, 20.0, 60.0])
def test_a_dead_shared_connection_leaves_time_for_another(lease: float) -> None:
    lost = link(lease)
    assert attempt(lost) < lease / 3 + 0.01
    retry(lost)
    assert 30 < attempt(lost) < 30 + lease / 3 + 0.01


# Leases -------------------------------------------------------------------------------------------


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
