"""Why a host could not be reached, and what to try: from what ssh said and how it ended."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from distrun.agent.linux.syscalls import signal_name
from distrun.spec.model import SshSpec
from distrun.supervisor.hosts.bootstrap import EXIT_TOO_OLD
from distrun.supervisor.hosts.ssh import by_hand

_LAST_LINES = 3
_LONGEST_SHOWN = 300
_SSH_FAILED = 255
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


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
_CLOSED_BY_PROXY = _Complaint(
    ("Connection to UNKNOWN port",),
    "the proxy on the way to it, or its sshd, closes the connection",
    "`{login} true` must work; what leads there is the ProxyCommand or ProxyJump of "
    "~/.ssh/config or ssh.options",
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
        ("Permission denied (", "Permission denied, please", "Too many authentication failures"),
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
        ("Unable to negotiate",),
        "it and the ssh of this machine have no algorithm in common",
        "allow one that it offers, as in `ssh: {{options: {{HostKeyAlgorithms: +ssh-rsa}}}}`, or "
        "bring its sshd up to date",
    ),
    _Complaint(
        ("during banner exchange",),
        "its sshd, or the jump host or proxy on the way to it, does not answer",
        "are all of them up, and no firewall in between? ssh.connect_timeout waits longer",
    ),
    _Complaint(
        ("timed out", "not responding"),
        "it does not answer",
        "is it switched on, and no firewall in between? ssh.connect_timeout waits longer",
    ),
    _CLOSED,
    _CLOSED_BY_PROXY,
)
_FULL = "No space left on device"
_UNANSWERED = "exchange_identification:"
"""What ssh says before why a connection ended, where that came before anybody had answered."""
_PROXIED = "exchange_identification: Connection closed"
"""What ssh says behind the jump host's complaint, which has ended and said nothing to it."""
_FORWARDED = "stdio forwarding failed"
"""The jump host is fine; it cannot reach the host itself."""
_BLAMED = re.compile(
    r"connect to host (\S+) port|^(?:\S+@)?(\S+): Permission denied|host key is known for (\S+) and"
    r"|Host key for (\S+) has changed|Could not resolve hostname (\S+):"
    r"|Connection (?:closed|reset) by (\S+) port",
    re.MULTILINE,
)
_SAYS_NOTHING = re.compile(
    r"@*|\w+_exchange_identification: Connection closed by remote host"
    r"|Connection closed by UNKNOWN port \d+"
)
"""Lines that tell nothing beside others: a frame around a warning, a proxy that is gone."""
_NAMELESS = "UNKNOWN"
"""What ssh calls a host that it comes to by way of another."""
_EATEN = (
    'File "<string>", line 1', "syntax error", "Syntax error", "quotes are not balanced",
    "Badly placed ()",
)  # fmt: skip
"""Somebody else read the beginning of what is sent, or Python none of it."""
_NO_COMMANDS = (
    "account is currently not available", "account is not available", "sftp connections only",
    "shell access", "I am? A shell?", "exec: restricted",
)  # fmt: skip
"""What nologin, sshd's own sftp, hosts of git and restricted shells say instead of doing it."""


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
    if "python3" in said and "not found" in said.lower():
        return _without_python(last)
    if status is None:
        said_last = f"; it printed: {last}" if last else ""
        return Diagnosis(
            f"its login did not come to an end within {seconds:g} s{said_last}",
            f"does `{by_hand(name, settings, 'echo', 'fine')}` print fine at once? If not, it may "
            "be out of reach, or a shell profile there waits for something or takes the output",
        )
    shown = _shown(status, last)
    if status == _SSH_FAILED:
        return _of_ssh(name, settings, said, shown)
    return _of_login(name, settings, status, said, printed, shown)


def _without_python(last: str) -> Diagnosis:
    reason = "there is no python3 on it" + (f" ({last})" if last else "")
    return Diagnosis(reason, "install Python 3.8 or newer there")


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
) -> Diagnosis:
    """What is wrong with what a login there runs."""
    if status == EXIT_TOO_OLD:
        found = re.search(r"distrun: its (.+)", said)
        return Diagnosis(
            f"{found[1] if found else 'its python3 is'}, too old for distrun's agent",
            "make a Python 3.8 or newer the first python3 in its PATH",
        )
    hint = f"try `{by_hand(name, settings, 'python3', '--version')}`"
    if any(sign in text for sign in _NO_COMMANDS for text in (said, printed)):
        reason = "its account runs no commands"
        hint = (
            "give it a login shell there, or name another user with ssh.user: "
            f"`{by_hand(name, settings, 'exec', 'true')}` must print nothing"
        )
    elif status == 0 or any(sign in said for sign in _EATEN):
        lines = (line.strip() for line in said.splitlines())
        shown = _shown(status, next((line for line in lines if "rror" in line), ""))
        reason = "what is sent to it does not reach Python there"
        hint = (
            "does a shell profile there read standard input or start another shell, or the "
            f"account run another command? `echo fine | {by_hand(name, settings, 'cat')}` must "
            "print fine"
        )
    elif status == _NOT_FOUND:
        return _without_python(shown)
    elif status == _NOT_EXECUTABLE:
        reason = "its python3 cannot be executed"
    elif _FULL in said:
        reason, hint = "a disk there is full", "make room on it"
    else:
        reason = "the agent could not start there"
    return Diagnosis(f"{reason} ({shown})", hint)


def _of_ssh(name: str, settings: SshSpec, said: str, shown: str) -> Diagnosis:
    """What ssh complains of, of the host or of another one on the way to it."""
    known = _known(said)
    if known is None:
        return Diagnosis(f"ssh failed ({shown})", f"try `{by_hand(name, settings, 'true')}`")
    before = _said_on_the_way(said)
    blamed = _BLAMED.search(before)
    reason, at = known.reason, name
    if blamed or (before and known is not _CLOSED):
        other = next(filter(None, blamed.groups()), "") if blamed else ""
        other = "" if other == _NAMELESS else other
        reason = f"its jump host {other}: {reason}" if other else f"its jump host: {reason}"
        settings = SshSpec(config_file=settings.config_file)
        at = other or name
    elif before:
        known = _CLOSED_BY_PROXY
        reason = known.reason
    hint = known.hint.format(login=by_hand(at, settings), forget=_forget(at, said))
    return Diagnosis(f"{reason} ({shown})", hint)


def _said_on_the_way(said: str) -> str:
    """What a proxy or jump host complained of, that did not come through to the host itself.

    It stands before what ssh says of the host; more of it still, where a jump host is reached
    through another.
    """
    before, proxied, after = said.rpartition(_PROXIED)
    before = before.rpartition("\n")[0]
    closed_by = _BLAMED.search(after)
    is_direct = closed_by is not None and _NAMELESS not in closed_by.groups()
    if not proxied or is_direct or (_FORWARDED in before and _PROXIED not in before):
        return ""
    return before if _telling(before) or _PROXIED in before else ""


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
    return status == _SSH_FAILED and _UNANSWERED in said and _known(said) is _CLOSED


def _known(said: str) -> _Complaint | None:
    """What ssh complains of."""
    return next((each for each in _KNOWN if any(sign in said for sign in each.signs)), None)


def _last_lines(text: str) -> str:
    """The last of those that tell something, in one."""
    lines = _telling(text) or [line.strip() for line in text.splitlines()]
    return " / ".join(lines[-_LAST_LINES:]).removeprefix("ssh: ")


def _telling(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not _SAYS_NOTHING.fullmatch(line)]


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
