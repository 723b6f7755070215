"""Why a host cannot be reached over ssh: known complaints of ssh, and how it ended."""

from __future__ import annotations

import re
import shlex
from typing import Any

from distrun.agent.protocol import Cause, Code
from distrun.spec.model import SshSpec
from distrun.supervisor.hosts.bootstrap import EXIT_TOO_OLD, TOO_OLD
from distrun.supervisor.hosts.ssh_command import login_command

SSH_FAILED = 255
"""The exit code with which ssh reports a failure of its own."""
_LAST_LINES = 3
_LONGEST_TEXT = 300
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


_KNOWN = {
    Code.SSH_OPTION_REFUSED: ("command-line line 0", "command-line: line 0"),
    Code.SSH_CONFIGURATION_REFUSED: ("Bad configuration option", "bad configuration options"),
    Code.HOST_KEY_CHANGED: (
        "REMOTE HOST IDENTIFICATION HAS CHANGED", "differs from the key for the IP"
    ),
    Code.HOST_KEY_UNKNOWN: ("Host key verification failed", "host key is known for"),
    Code.LOGIN_REFUSED: (
        "Permission denied (", "Permission denied, please", "Too many authentication failures"
    ),
    Code.SSH_NAME_NOT_RESOLVED: ("Could not resolve hostname",),
    Code.SSH_PORT_CLOSED: ("Connection refused",),
    Code.SSH_NO_ROUTE: ("No route to host", "Network is unreachable", "Host is down"),
    Code.NO_COMMON_ALGORITHM: ("Unable to negotiate",),
    Code.BANNER_MISSING: ("during banner exchange",),
    Code.SSH_TIMED_OUT: ("timed out", "not responding"),
    Code.CLOSED_BY_SSHD: (
        "Connection closed by", "Connection reset by", "closed by remote host"
    ),
    Code.CLOSED_BY_PROXY: ("Connection to UNKNOWN port",),
}  # fmt: skip
"""The phrases by which ssh reports each kind of failure; the first that occurs counts."""
_FULL = "No space left on device"
_UNANSWERED = "exchange_identification:"
"""ssh prints this before the reason if a connection ended before anybody had answered."""
_PROXIED = "exchange_identification: Connection closed"
"""ssh prints this after a complaint of its proxy, which ended without a word to it."""
_FORWARDED = "stdio forwarding failed"
"""The jump host works, but cannot reach the host itself."""
_BLAMED = re.compile(
    r"connect to host (\S+) port|^(?:\S+@)?(\S+): Permission denied|host key is known for (\S+) and"
    r"|Host key for (\S+) has changed|Could not resolve hostname (\S+):"
    r"|Connection (?:closed|reset) by (\S+) port",
    re.MULTILINE,
)
_MEANINGLESS = re.compile(
    r"@*|\w+_exchange_identification: Connection closed by remote host"
    r"|Connection closed by UNKNOWN port \d+"
)
"""Lines that add nothing to others: the frame around a warning, a proxy that is gone."""
_NAMELESS = "UNKNOWN"
"""ssh's name for a host that it reaches through another one."""
_INPUT_TAKEN = (
    'File "<string>", line 1', "syntax error", "Syntax error", "quotes are not balanced",
    "Badly placed ()",
)  # fmt: skip
"""Printed where something other than Python read the start of the input, or all of it."""
_NO_COMMANDS = (
    "account is currently not available", "account is not available", "sftp connections only",
    "shell access", "I am? A shell?", "exec: restricted",
)  # fmt: skip
"""Printed by nologin, sshd's internal sftp, git servers and restricted shells."""


def diagnose(
    name: str, settings: SshSpec, status: int | None, said: str, noise: bytes, seconds: float
) -> Cause:
    """Return why the first connection to a host failed.

    Args:
        name: the host's.
        settings: the spec's `ssh`.
        status: how ssh exited; None: it still ran after `seconds`.
        said: its standard error.
        noise: its standard output.
        seconds: the time that it had.
    """
    printed = noise.decode("utf-8", "replace")
    login = (login_command(name, settings),)
    last = _last_lines(said) or _last_lines(printed)
    if "python3" in said and "not found" in said.lower():
        return Cause(Code.PYTHON_MISSING, text=last)
    if status is None:
        return Cause(Code.LOGIN_TIMED_OUT, seconds=seconds, text=last, commands=login)
    if status == SSH_FAILED:
        return _of_ssh(name, settings, said)._replace(**_evidence(status, last))
    code = _of_login(status, said, printed)
    if code is Code.INPUT_TAKEN_BY_LOGIN:
        lines = (line.strip() for line in said.splitlines())
        last = next((line for line in lines if "rror" in line), "")
    found = re.search(rf"{TOO_OLD} (\S+)", said) if code is Code.PYTHON_TOO_OLD else None
    return Cause(code, name=found[1] if found else "", commands=login, **_evidence(status, last))


def _evidence(status: int, last: str) -> dict[str, Any]:
    """What ssh printed last, and how it ended, as fields of a cause."""
    if len(last) > _LONGEST_TEXT:
        last = f"{last[:_LONGEST_TEXT]} ..."
    how = {"signal": -status} if status < 0 else {"status": status}
    return {"text": last, **how}


def _of_login(status: int, said: str, printed: str) -> Code:
    """What is wrong with the commands that a login runs."""
    if status == EXIT_TOO_OLD:
        return Code.PYTHON_TOO_OLD
    if any(sign in text for sign in _NO_COMMANDS for text in (said, printed)):
        return Code.ACCOUNT_RUNS_NO_COMMANDS
    if status == 0 or any(sign in said for sign in _INPUT_TAKEN):
        return Code.INPUT_TAKEN_BY_LOGIN
    if status == _NOT_FOUND:
        return Code.PYTHON_MISSING
    if status == _NOT_EXECUTABLE:
        return Code.PYTHON_NOT_EXECUTABLE
    return Code.REMOTE_DISK_FULL if _FULL in said else Code.AGENT_NOT_STARTED


def _of_ssh(name: str, settings: SshSpec, said: str) -> Cause:
    """The failure that ssh reports, of the host or of another one on the way to it."""
    known = _known(said)
    login = (login_command(name, settings),)
    if known is None:
        return Cause(Code.SSH_FAILED, commands=login)
    before = _printed_on_the_way(said)
    blamed = _BLAMED.search(before)
    if blamed or (before and known is not Code.CLOSED_BY_SSHD):
        other = next(filter(None, blamed.groups()), "") if blamed else ""
        other = "" if other == _NAMELESS else other
        at = other or name
        login = (login_command(at, SshSpec(config_file=settings.config_file)),)
        inner = Cause(known, commands=_commands(known, login, at, said))
        return Cause(Code.JUMP_HOST_FAILED, name=other, within=(inner,))
    code = Code.CLOSED_BY_PROXY if before else known
    return Cause(code, commands=_commands(code, login, name, said))


def _commands(code: Code, login: tuple[str, ...], at: str, said: str) -> tuple[str, ...]:
    return (*login, _forget_command(at, said)) if code is Code.HOST_KEY_CHANGED else login


def _printed_on_the_way(said: str) -> str:
    """The complaints of a proxy or jump host that did not get through to the host itself.

    They stand before what ssh says of the host. There are more if a jump host is reached through
    another one.
    """
    before, proxied, after = said.rpartition(_PROXIED)
    before = before.rpartition("\n")[0]
    closed_by = _BLAMED.search(after)
    is_direct = closed_by is not None and _NAMELESS not in closed_by.groups()
    if not proxied or is_direct or (_FORWARDED in before and _PROXIED not in before):
        return ""
    return before if _meaningful_lines(before) or _PROXIED in before else ""


def _forget_command(name: str, said: str) -> str:
    """The command that removes a changed key from known_hosts: ssh's own, if it names one."""
    advised = re.search(r"^\s*(ssh-keygen -f .+? -R .+?)\s*$", said, re.MULTILINE)
    if advised:
        return advised[1]
    file = re.search(r"^Offending .*? in (\S.*):\d+\s*$", said, re.MULTILINE)
    host = re.search(r"^Host key for (\S+) has changed", said, re.MULTILINE)
    words = ["-f", file[1]] if file else []
    return shlex.join(["ssh-keygen", *words, "-R", host[1] if host else name.rpartition("@")[2]])


def is_transient(status: int, said: str) -> bool:
    """Return whether sshd may have refused because many connections came at once (MaxStartups)."""
    return status == SSH_FAILED and _UNANSWERED in said and _known(said) is Code.CLOSED_BY_SSHD


def _known(said: str) -> Code | None:
    found = (code for code, signs in _KNOWN.items() if any(sign in said for sign in signs))
    return next(found, None)


def _last_lines(text: str) -> str:
    """The last meaningful lines, joined into one."""
    lines = _meaningful_lines(text) or [line.strip() for line in text.splitlines()]
    return " / ".join(lines[-_LAST_LINES:]).removeprefix("ssh: ")


def _meaningful_lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not _MEANINGLESS.fullmatch(line)]


def last_line(said: str) -> str:
    """Return the last line that ssh printed, without its own name."""
    return said.splitlines()[-1].strip().removeprefix("ssh: ") if said else ""
