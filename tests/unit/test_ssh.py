"""How ssh is called. How a lost link is tried again, tests/ssh/test_lost_links.py has."""

from __future__ import annotations

from distrun.spec.model import SshSpec
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
