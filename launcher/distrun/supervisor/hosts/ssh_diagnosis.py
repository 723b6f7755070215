"""Finds out why a host cannot be reached over ssh, from what ssh printed and its exit code."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from distrun.agent.protocol import Cause, Code
from distrun.spec.host_spec import SshSpec
from distrun.supervisor.hosts.bootstrap import EXIT_TOO_OLD, TOO_OLD
from distrun.supervisor.hosts.ssh_command import login_command

SSH_FAILED = 255
_LAST_LINES = 3
_LONGEST_TEXT = 300
_SHELL_STATUSES = {126: Code.PYTHON_NOT_EXECUTABLE, 127: Code.PYTHON_MISSING}
"""What a shell's exit code says of the command, python3."""


_PHRASES = {
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
"""ssh prints this before the reason if a connection ended without any answer."""
_PROXIED = "exchange_identification: Connection closed"
"""ssh prints this after the messages of its proxy, which ended without an answer."""
_FORWARDED = "stdio forwarding failed"
"""The jump host works, but cannot reach the host itself."""
_BLAMED = re.compile(
    r"connect to host (\S+) port|^(?:\S+@)?([^\s-]\S*): Permission denied"
    r"|host key is known for ([^\s-]\S*) and|Host key for ([^\s-]\S*) has changed"
    r"|Could not resolve hostname (\S+):|Connection (?:closed|reset) by ([^\s-]\S*) port",
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
"""Printed if something other than Python read the input or its beginning."""
_NO_COMMANDS = (
    "account is currently not available", "account is not available", "sftp connections only",
    "shell access", "I am? A shell?", "exec: restricted",
)  # fmt: skip
"""Printed by nologin, sshd's internal sftp, git servers and restricted shells."""


def diagnose(
    name: str, settings: SshSpec, status: int | None, stderr: str, noise: bytes, seconds: float
) -> Cause:
    """Return why the first connection to a host failed.

    `status`: how ssh exited; None: it still ran after `seconds`. `noise`: its standard output.
    """
    stdout = noise.decode("utf-8", "replace")
    login = (login_command(name, settings),)
    last = _last_lines(stderr) or _last_lines(stdout)
    if "python3" in stderr and "not found" in stderr.lower():
        return Cause(Code.PYTHON_MISSING, text=last)
    if status is None:
        return Cause(Code.LOGIN_TIMED_OUT, seconds=seconds, text=last, commands=login)
    if status == SSH_FAILED:
        cause = _diagnose_ssh(name, settings, stderr)
        return cause._replace(**_exit_fields(status, last))
    if os.strerror(errno.EAGAIN) in stderr:  # of a shell, or of the Python that becomes the agent
        return Cause(Code.AGENT_NOT_STARTED, errno=errno.EAGAIN)
    code = _diagnose_login(status, stderr, stdout)
    if code is Code.INPUT_TAKEN_BY_LOGIN:
        lines = (line.strip() for line in stderr.splitlines())
        last = next((line for line in lines if "rror" in line), "")
    found = re.search(rf"{TOO_OLD} (\S+)", stderr) if code is Code.PYTHON_TOO_OLD else None
    return Cause(code, name=found[1] if found else "", commands=login, **_exit_fields(status, last))


def _exit_fields(status: int, last: str) -> dict[str, Any]:
    """The last words of ssh and its exit, as fields of a cause."""
    if len(last) > _LONGEST_TEXT:
        last = f"{last[:_LONGEST_TEXT]} ..."
    how = {"signal": -status} if status < 0 else {"status": status}
    return {"text": last, **how}


def _diagnose_login(status: int, stderr: str, stdout: str) -> Code:
    if status == EXIT_TOO_OLD:
        return Code.PYTHON_TOO_OLD
    if any(sign in text for sign in _NO_COMMANDS for text in (stderr, stdout)):
        return Code.ACCOUNT_RUNS_NO_COMMANDS
    if "'/proc/self/fd'" in stderr:  # the agent reads it first
        return Code.PROC_MISSING
    if status == 0 or any(sign in stderr for sign in _INPUT_TAKEN):
        return Code.INPUT_TAKEN_BY_LOGIN
    if status in _SHELL_STATUSES:
        return _SHELL_STATUSES[status]
    return Code.REMOTE_DISK_FULL if _FULL in stderr else Code.AGENT_NOT_STARTED


def _diagnose_ssh(name: str, settings: SshSpec, stderr: str) -> Cause:
    """Return the failure that ssh reports, of the host or of another one on the way to it."""
    known = _reported_failure(stderr)
    login: tuple[str, ...] = (login_command(name, settings),)
    if known is None:
        return Cause(Code.SSH_FAILED, commands=login)
    before = _printed_on_the_way(stderr)
    blamed = _BLAMED.search(before)
    if blamed or (before and known is not Code.CLOSED_BY_SSHD):
        other = next(filter(None, blamed.groups()), "") if blamed else ""
        other = "" if other == _NAMELESS else other
        at = other or name
        login = (login_command(at, SshSpec(config_file=settings.config_file)),)
        inner = Cause(known, commands=login)
        return Cause(Code.JUMP_HOST_FAILED, name=other, within=(inner,))
    return Cause(Code.CLOSED_BY_PROXY if before else known, commands=login)


def _printed_on_the_way(stderr: str) -> str:
    """Return the messages of a proxy or jump host that could not connect to the host itself."""
    before, proxied, after = stderr.rpartition(_PROXIED)
    before = before.rpartition("\n")[0]
    closed_by = _BLAMED.search(after)
    is_direct = closed_by is not None and _NAMELESS not in closed_by.groups()
    if not proxied or is_direct or (_FORWARDED in before and _PROXIED not in before):
        return ""
    return before if _meaningful_lines(before) or _PROXIED in before else ""


def is_transient(status: int, stderr: str) -> bool:
    """Return whether sshd may have refused because many connections came at once (MaxStartups)."""
    return (
        status == SSH_FAILED
        and _UNANSWERED in stderr
        and _reported_failure(stderr) is Code.CLOSED_BY_SSHD
    )


def _reported_failure(stderr: str) -> Code | None:
    found = (code for code, signs in _PHRASES.items() if any(sign in stderr for sign in signs))
    return next(found, None)


def _last_lines(text: str) -> str:
    lines = _meaningful_lines(text) or [line.strip() for line in text.splitlines()]
    return " / ".join(lines[-_LAST_LINES:]).removeprefix("ssh: ")


def _meaningful_lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not _MEANINGLESS.fullmatch(line)]


def last_line(stderr: str) -> str:
    """Return the last line that ssh printed, without its own name."""
    return stderr.splitlines()[-1].strip().removeprefix("ssh: ") if stderr else ""
