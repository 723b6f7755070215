"""Why a host could not be reached, and what to try: from what ssh said and how it ended."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from distrun.agent.kernel import signal_name
from distrun.spec.model import SshSpec
from distrun.transport.payload import EXIT_TOO_OLD
from distrun.transport.ssh import by_hand

_LAST_LINES = 3
_LONGEST_SHOWN = 300
_SSH_FAILED = 255
_NOT_FOUND = 127


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong, in words that follow a host's name, and what to try."""

    reason: str
    hint: str


@dataclass(frozen=True)
class _Complaint:
    """What ssh says of one kind of failure, and what it means.

    In the hint `{login}` stands for the command that logs in, `{forget}` for the one that takes
    a host's key out of known_hosts.
    """

    signs: tuple[str, ...]
    reason: str
    hint: str


_CLOSED = _Complaint(
    ("Connection closed by", "Connection reset by", "closed by remote host"),
    "its sshd closes the connection",
    "its log (journalctl -u ssh) says why; MaxStartups or AllowUsers in sshd_config may",
)
_KNOWN = (
    _Complaint(
        ("command-line line 0", "command-line: line 0"),
        "ssh does not take an option that it is given",
        "correct ssh.options: ssh_config(5) has the options and what they can be",
    ),
    _Complaint(
        ("Bad configuration option", "bad configuration options"),
        "ssh does not take what its configuration says",
        "correct that line, or name another file with ssh.config_file",
    ),
    _Complaint(
        ("REMOTE HOST IDENTIFICATION HAS CHANGED", "differs from the key for the IP"),
        "its host key is not the one in known_hosts",
        "if it was set up anew, `{forget}` and `{login}` take the new key; if not, somebody may "
        "be in between",
    ),
    _Complaint(
        ("Host key verification failed", "host key is known for"),
        "its host key is not known",
        "log in once by hand, `{login}`, and compare the key it shows",
    ),
    _Complaint(
        ("Permission denied", "Too many authentication failures"),
        "the login is refused",
        "`{login} true` must work without asking: ssh-copy-id puts your key there, ssh-add "
        "unlocks it, ssh.user and ssh.identity_file say whose",
    ),
    _Complaint(
        ("Could not resolve hostname",),
        "its name cannot be resolved",
        "correct it under hosts, or name it in ~/.ssh/config",
    ),
    _Complaint(
        ("Connection refused",),
        "nothing listens at its ssh port",
        "is sshd running there, and at the port in ssh.port?",
    ),
    _Complaint(
        ("No route to host", "Network is unreachable", "Host is down"),
        "there is no way to it",
        "is it switched on, and the network (VPN) up?",
    ),
    _Complaint(
        ("timed out", "Operation timed out"),
        "it does not answer",
        "is it switched on, and no firewall in between? ssh.connect_timeout waits longer",
    ),
    _CLOSED,
    _Complaint(
        ("No space left on device",),
        "a disk there is full",
        "make room on it",
    ),
)
_NO_PYTHON = Diagnosis("there is no python3 on it", "install Python 3.8 or newer there")
_PROXIED = "kex_exchange_identification: Connection closed"
"""What ssh says beside the jump host's complaint, since that ends before anybody has answered."""
_FORWARDED = "stdio forwarding failed"
"""The jump host is fine; it cannot reach the host itself."""
_BLAMED = re.compile(
    r"connect to host (\S+) port|^(?:\S+@)?(\S+): Permission denied|host key is known for (\S+) and"
    r"|Host key for (\S+) has changed|Could not resolve hostname (\S+):"
    r"|Connection (?:closed|reset) by (\S+) port",
    re.MULTILINE,
)
_NAMELESS = "UNKNOWN"
"""What ssh calls a host that it comes to by way of another."""
_EATEN = (
    'File "<string>", line 1', "syntax error", "Syntax error", "quotes are not balanced",
    "Badly placed ()",
)  # fmt: skip
"""Somebody else read the beginning of what is sent, or Python none of it."""
_NO_COMMANDS = (
    "account is currently not available", "account is not available", "sftp connections only",
    "shell access", "I am? A shell?",
)  # fmt: skip
"""What nologin, sshd's own sftp, and hosts of git say in place of doing what they are asked."""


def diagnose(
    name: str, settings: SshSpec, status: int | None, said: str, noise: bytes, seconds: float
) -> Diagnosis:
    """What kept the link to a host from beginning.

    Args:
        name: the host's.
        settings: the spec's `ssh`.
        status: how ssh exited; None: it still ran after `seconds`.
        said: what came on its standard error.
        noise: what came on its standard output.
        seconds: how long was waited at most.
    """
    printed = noise.decode("utf-8", "replace")
    last = _last_lines(said) or _last_lines(printed)
    has_no_python = "python3" in said and "not found" in said.lower()
    if status is None and not has_no_python:
        said_last = f"; it printed: {last}" if last else ""
        return Diagnosis(
            f"its login did not come to an end within {seconds:g} s{said_last}",
            f"does `{by_hand(name, settings, 'true')}` end at once? A shell profile there may "
            "wait for something",
        )
    if status == EXIT_TOO_OLD:
        return Diagnosis(
            f"{last.rpartition('distrun: its ')[2]}, too old for distrun's agent",
            "make a Python 3.8 or newer the first python3 in its PATH",
        )
    shown = _shown(status, last)
    found = None
    if status is not None and status != _SSH_FAILED:
        found = _of_login(name, settings, status, said, printed, shown)
    if found is None and (status in (None, _NOT_FOUND) or has_no_python):
        found = Diagnosis(f"{_NO_PYTHON.reason} ({last})" if last else _NO_PYTHON.reason,
                          _NO_PYTHON.hint)  # fmt: skip
    return found or _of_ssh(name, settings, status, said, shown)


def _shown(status: int | None, last: str) -> str:
    """What is repeated of ssh's own words, and how it ended."""
    how = f"exit code {status}"
    if status is not None and status < 0:
        how = f"killed by {signal_name(-status)}"
    if len(last) > _LONGEST_SHOWN:
        last = f"{last[:_LONGEST_SHOWN]} ..."
    return f"ssh: {last}, {how}" if last else f"ssh: {how}"


def _of_login(
    name: str, settings: SshSpec, status: int, said: str, printed: str, shown: str
) -> Diagnosis | None:
    """What is wrong with what a login there runs; None where it is something else."""
    if any(sign in text for sign in _NO_COMMANDS for text in (said, printed)):
        return Diagnosis(
            f"its account runs no commands ({shown})",
            "give it a login shell there, or name another user with ssh.user: "
            f"`{by_hand(name, settings, 'true')}` must print nothing",
        )
    if status == 0 or any(sign in said for sign in _EATEN):
        lines = (line.strip() for line in said.splitlines())
        error = next((line for line in lines if "rror" in line), "")
        return Diagnosis(
            f"what is sent to it does not reach Python there ({_shown(status, error)})",
            "does a shell profile there read standard input or start another shell, or the "
            f"account run another command? `echo fine | {by_hand(name, settings, 'cat')}` must "
            "print fine",
        )
    return None


def _of_ssh(name: str, settings: SshSpec, status: int | None, said: str, shown: str) -> Diagnosis:
    """What ssh complains of, of the host or of another one on the way to it."""
    known = _known(said)
    if known is None and status == _SSH_FAILED:
        return Diagnosis(f"ssh failed ({shown})", f"try `{by_hand(name, settings, 'true')}`")
    if known is None:
        return Diagnosis(
            f"the agent could not start there ({shown})",
            f"try `{by_hand(name, settings, 'python3', '--version')}`",
        )
    reason, at = known.reason, name
    # The jump host's complaint stands before what ssh says of the host itself.
    of_jump, proxied, _ = said.rpartition(_PROXIED)
    blamed = _BLAMED.search(of_jump)
    if proxied and _FORWARDED not in said and (blamed or known is not _CLOSED):
        other = next(filter(None, blamed.groups()), "") if blamed else ""
        other = "" if other == _NAMELESS else other
        reason = f"its jump host {other}: {reason}" if other else f"its jump host: {reason}"
        settings = SshSpec(config_file=settings.config_file)
        at = other or name
    hint = known.hint.format(login=by_hand(at, settings), forget=_forget(at, said))
    return Diagnosis(f"{reason} ({shown})", hint)


def _forget(name: str, said: str) -> str:
    """The command that takes a changed key out of known_hosts: as ssh has it, where it says."""
    advised = re.search(r"^\s*(ssh-keygen -f .+? -R .+?)\s*$", said, re.MULTILINE)
    if advised:
        return advised[1]
    file = re.search(r"^Offending .*? in (\S.*):\d+\s*$", said, re.MULTILINE)
    host = re.search(r"^Host key for (\S+) has changed", said, re.MULTILINE)
    words = ["-f", file[1]] if file else []
    return shlex.join(["ssh-keygen", *words, "-R", host[1] if host else name.rpartition("@")[2]])


def may_pass(status: int, said: str) -> bool:
    """Whether sshd may have closed the connection because many came at once (MaxStartups)."""
    return status == _SSH_FAILED and _known(said) is _CLOSED


def _known(said: str) -> _Complaint | None:
    """What ssh complains of."""
    return next((each for each in _KNOWN if any(sign in said for sign in each.signs)), None)


def _last_lines(text: str) -> str:
    """The last lines in one, without the frames that ssh draws around warnings."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and set(line) != {"@"}]
    return " / ".join(telling[-_LAST_LINES:]).removeprefix("ssh: ")


def how_ssh_ended(status: int, said: str) -> str:
    """How a link's ssh ended, for people."""
    if status < 0:
        return f"ssh was killed by {signal_name(-status)}"
    return f"ssh: {_last_line(said)}" if said else f"ssh exited with {status}"


def how_the_agent_ended(status: int, said: str) -> str:
    """How the agent at a link's other end did, whose exit code ssh hands on."""
    how = f"was killed by {signal_name(status - 128)}" if status > 128 else f"exited with {status}"
    return f"its agent {how}" + (f" ({_last_line(said)})" if said else "")


def _last_line(said: str) -> str:
    return said.splitlines()[-1].strip().removeprefix("ssh: ") if said else ""
