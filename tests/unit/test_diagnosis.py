"""What is said of hosts that cannot be used, from what ssh and their logins said."""

from typing import Any, NamedTuple

import pytest

from harness.parts.hosts import diagnose, is_transient
from harness.parts.protocol import Cause, Code
from harness.parts.settings import SshSpec
from harness.parts.words import cause_advice, cause_text

PLAIN = SshSpec()
FULL = SshSpec(
    user="u", port=2222, identity_file="/k/my key", config_file="/c", options={"Tunnel": "no"}
)
LOGIN = "ssh -F /c -p 2222 -l u -i '/k/my key' -oTunnel=no h1"
NOBODY = "root@h1: Permission denied (publickey)."
CHANGED = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed."
UNKNOWN = "No ED25519 host key is known for jump and you have\nHost key verification failed.\n"
BLOCKED = "open failed: connect failed: Connection refused\nstdio forwarding failed\n"
SLOW = "Connection timed out during banner exchange"
NEGOTIATED = """\
Unable to negotiate with 10.0.0.7 port 22: no matching host key type found. Their offer: ssh-rsa"""
NAMELESS = "Connection closed by UNKNOWN port 65535"
UNAUTHORIZED = "Unauthorized shell access is prohibited"
HOMELESS = "Could not chdir to home directory /home/u: Permission denied"
JUMPED = "kex_exchange_identification: Connection closed by remote host"


class Diagnosis(NamedTuple):
    reason: str
    hint: str


def of(said: str, status: int | None = 255, ssh: SshSpec = PLAIN, **about: Any) -> Diagnosis:
    given = {"name": "h1", "noise": b"", "seconds": 40.0, **about}
    cause = diagnose(settings=ssh, status=status, stderr=said, **given)
    return Diagnosis(cause_text(cause), cause_advice(cause) or "")


@pytest.mark.parametrize(
    ("said", "jump"),
    [
        (f"ssh: connect to host jump port 22: Connection refused\n{JUMPED}", " jump: nothing li"),
        (f"u@jump: Permission denied (publickey).\n{JUMPED}", " jump: the login is refused"),
        (f"{UNKNOWN}{JUMPED}", " jump: its host key is not known"),
        (f"Connection reset by 10.0.0.9 port 22\n{JUMPED}", " 10.0.0.9: its sshd closes"),
        (f"{BLOCKED}{JUMPED}\n{NAMELESS}\n{JUMPED}", ": nothing li"),
    ],
)
def test_a_jump_host_that_does_not_let_through_is_named(said: str, jump: str) -> None:
    found = of(said, ssh=SshSpec(config_file="/c", port=2222))
    assert found.reason.startswith(f"its jump host{jump}")
    assert "h1" not in found.hint
    assert "ssh -F /c jump" in found.hint or "`" not in found.hint


NO_PYTHON = "there is no python3"
UNHEARD = "its Python does not receive what distrun sends"
STRING = '  File "<string>", line 1\nSyntaxError: '
PROFILE = f"`echo fine | {LOGIN} cat`"
CASES: list[tuple[str, int | None, str, str]] = [
    (NOBODY, 255, "the login is refused", f"`{LOGIN} true` must work"),
    ("Host key verification failed.", 255, "", f"by hand, `{LOGIN}`,"),
    (CHANGED, 255, "its host key is not the one in known_hosts", f"old key: `{LOGIN}` shows the"),
    ("odd", None, "", f"does `{LOGIN} echo fine` print fine at once"),
    ("python3: Permission denied", 126, "its python3 cannot", f"`{LOGIN} python3 --version`"),
    # Behind a jump host that lets through, the host itself is at fault.
    (f"channel 0: {BLOCKED}{JUMPED}", 255, "nothing listens at its ssh port", ""),
    (JUMPED, 255, "its sshd closes the connection", ""),
    (f"{SLOW}\nConnection to UNKNOWN port 65535 timed out", 255, "its sshd, or the jump host", ""),
    # A profile takes what is sent.
    (f"{STRING}source code string cannot contain null bytes", 1, UNHEARD, PROFILE),
    ("", 0, UNHEARD, PROFILE),
    ("", -9, "the login was killed by SIGKILL before", ""),
    # The account runs no commands.
    ("bash: line 1: exec: restricted", 1, "its account runs no commands (ssh: ", ""),
    # No word that stands beside the cause is told.
    (f"{UNAUTHORIZED}\nbash: line 1: exec: python3: not found", 127, NO_PYTHON, ""),
    ("fish: Unknown command: python3", 127, NO_PYTHON, ""),
    (f"{HOMELESS}\nFatal Python error: init_fs_encoding", 1, "the login exited 1 before", ""),
    ("OSError: [Errno 28] No space left on device", 1, "a disk there is full", ""),
    ('File "<string>", line 1\nResource temporarily unavailable', 1, "its agent cannot", "raise"),
    (f"sh: 1: nc: not found\n{JUMPED}\n{NAMELESS}", 255, "the proxy on the way to it, or", ""),
    (NEGOTIATED, 255, "it and the ssh of this machine have no algorithm in common", ""),
]


@pytest.mark.parametrize(("said", "status", "reason", "hint"), CASES)
def test_the_cause_and_what_to_do(said: str, status: int | None, reason: str, hint: str) -> None:
    found = of(said, status, FULL)
    assert found.reason.startswith(reason)
    assert hint in found.hint


def test_only_who_is_turned_away_at_the_door_comes_again() -> None:
    closed = "Connection closed by 10.0.0.7 port 22"
    at_the_door = f"kex_exchange_identification: read: Connection reset by peer\n{closed}"
    assert is_transient(255, at_the_door)
    assert not is_transient(255, closed)


def test_three_of_many_hosts_that_a_start_has_waited_for_are_shown() -> None:
    waits = tuple(Cause(Code.PROBE_TIMED_OUT, host=f"h{n}") for n in range(5))
    late = Cause(Code.START_TIMED_OUT, seconds=300, tasks=("worker:0", "ps:0"), within=waits)
    assert len(cause_text(late).splitlines()) == 1 + 3
