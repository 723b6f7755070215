"""Causes in words: the one place where a code becomes a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from distrun.agent.protocol import Cause, Code


def cause_text(cause: Cause) -> str:
    """What failed, as a clause without a full stop."""
    return _TEXT[cause.code](cause)


def cause_advice(cause: Cause) -> str | None:
    """What to do about it; None where nothing helps that distrun could name."""
    advice = _ADVICE.get(cause.code)
    return None if advice is None else advice(cause)


def _why(cause: Cause) -> str:
    return os.strerror(cause.errno)


def _on(cause: Cause) -> str:
    return f"on {cause.host} " if cause.host else ""


def _port(cause: Cause) -> str:
    return f"port {cause.port} on {cause.host}" if cause.host else f"port {cause.port}"


_CHECK_PROGRAM = "check `program` in the spec; `distrun plan SPEC` shows each task's command"

_TEXT: dict[Code, Callable[[Cause], str]] = {
    # A task's program could not be executed.
    Code.PROCESS_NOT_MADE: lambda c: f"a process for it could not be made: {_why(c)}",
    Code.LOG_NOT_OPENED: lambda c: f"its log {c.path!r} cannot be opened: {_why(c)}",
    Code.WORKDIR_NOT_ENTERED: lambda c: (
        f"its working folder {c.path!r} cannot be entered: {_why(c)}"
    ),
    Code.PROGRAM_NOT_FOUND: lambda c: (
        f"there is no program {c.name!r}{'' if '/' in c.name else ' in PATH'}"
    ),
    Code.INTERPRETER_NOT_FOUND: lambda c: (
        f"{c.name!r} names an interpreter that is not there: {c.path}"
    ),
    Code.PROGRAM_NOT_EXECUTABLE: lambda c: (
        f"{c.name!r} may not be executed: is it a file, and executable?"
    ),
    Code.PROGRAM_FORMAT_UNKNOWN: lambda c: (
        f"{c.name!r} is no program: its first line should be like #!/bin/sh"
    ),
    Code.ARGUMENTS_TOO_LONG: lambda _: (
        "its arguments and environment are too large for Linux (128 KiB for one string)"
    ),
    Code.PROGRAM_NOT_EXECUTED: lambda c: f"{c.name!r} cannot be executed: {_why(c)}",
    Code.AGENT_DEFECT: lambda c: f"the agent failed before executing it: {c.text}",
    Code.LOG_NOT_WRITTEN: lambda c: f"its log {c.path!r} cannot be written: {_why(c)}",
    # An agent cannot go on.
    Code.AGENT_TERMINATED: lambda _: "its agent was told to end by SIGTERM",
    Code.AGENT_DIR_NOT_CREATED: lambda c: (
        f"there is no place for logs on it: {'; '.join(map(cause_text, c.within))}"
    ),
    Code.PATH_NOT_WRITABLE: lambda c: f"{c.path}: {_why(c)}",
    Code.LOG_DIR_NOT_CREATED: lambda c: (
        f"the folder {c.path!r} for logs cannot be created: {_why(c)}"
    ),
    Code.LOG_DISK_FULL: lambda c: f"the disk of its tasks' logs, {c.path!r}, is full",
    Code.LEASE_EXPIRED: lambda c: (
        f"its agent received nothing from the launching side for {c.seconds:g} s (timeouts.link)"
    ),
    Code.LINK_CLOSED: lambda _: "the launching side closed its link",
    Code.SUPERVISOR_DIED: lambda _: "its supervisor died",
    # A link carries something else than this protocol.
    Code.PROTOCOL_DIFFERS: lambda c: (
        f"the supervisor speaks protocol {c.count}, this agent {c.total}"
    ),
    Code.FRAME_TOO_LONG: lambda c: f"a frame of {c.count} bytes: noise on the link",
    Code.MESSAGE_TOO_LONG: lambda c: f"a message of {c.count} bytes is over the limit",
    Code.MESSAGE_INVALID: lambda c: f"not a message of this protocol: {c.text!r}",
    Code.MESSAGE_UNEXPECTED: lambda c: f"received a {c.name} where a {c.text} was expected",
    # Ports cannot be held.
    Code.PORT_TAKEN: lambda c: (
        f"{_port(c)} is taken{f': {c.name} (pid {c.pid}) has it' if c.pid else ''}"
    ),
    Code.PORT_HELD_BY_JOB: lambda c: f"{_port(c)} is taken: another distrun job holds it",
    Code.PORT_PRIVILEGED: lambda c: f"{_port(c)} needs more rights, as all ports below 1024 do",
    Code.PORT_NOT_HELD: lambda c: f"{_port(c)} cannot be held: {_why(c)}",
    Code.FREE_PORTS_NOT_HELD: lambda c: (
        f"{_on(c)}{'no port can' if c.total == 1 else f'{c.total} ports cannot'} be held: {_why(c)}"
    ),
    Code.TOO_FEW_FREE_PORTS: lambda c: (
        f"{_on(c)}only {c.count} of {c.total} ports "
        f"{'from {} to {}'.format(*c.text.split('-')) if c.text else 'on this host'} are free"
    ),
    # A host cannot have the program's files.
    Code.FILE_NOT_WRITTEN: lambda c: f"{c.path}: {_why(c)}",
    Code.FILE_NOT_READ: lambda c: f"{c.path!r} cannot be sent: {_why(c)}",
    Code.FILE_CHANGED: lambda c: (
        f"{c.path!r} changed while it was being sent; launch again, or leave it out with a "
        ".gitignore"
    ),
    Code.FILE_TRUNCATED: lambda c: f"{c.path!r} became shorter while it was being sent",
    Code.DISK_UNRELIABLE: lambda _: "a disk there does not keep what is written to it",
    Code.DIGEST_INVALID: lambda c: f"{c.text!r} is not a SHA-256",
    Code.PATH_OUTSIDE_TREE: lambda c: f"{c.path!r} is not a path inside the program's files",
    Code.LINK_OUTSIDE_TREE: lambda c: (
        f"the link {c.path!r} leads out of the program's files, to {c.name!r}"
    ),
    # A host was probed before the first task started.
    Code.PROBE_NOT_STARTED: lambda c: f"no process could be made: {_why(c)}",
    Code.PROBE_TIMED_OUT: lambda _: "it took too long",
    Code.PROBE_DIED: lambda _: "its process died",
    Code.PORT_NOT_LISTENING: lambda c: f"port {c.port} cannot be listened on: {_why(c)}",
    Code.CONNECTION_REFUSED: lambda _: (
        "refused: a firewall rejects it, or it is not that host's address"
    ),
    Code.CONNECTION_TIMED_OUT: lambda c: (
        f"no answer within {c.seconds:g} s: a firewall drops it, or nothing has that address"
    ),
    Code.NO_ROUTE: lambda c: (
        f"there is no way to it ({_why(c)}): a firewall rejects it, or the networks are not joined"
    ),
    Code.CONNECTION_FAILED: _why,
    Code.NAME_NOT_RESOLVED: lambda c: (
        f"the name cannot be looked up there ({c.text or f'no answer within {c.seconds:g} s'})"
    ),
    Code.GREETING_MISSING: lambda c: (
        "the connection is accepted, but nothing of this job answers"
        f"{f' ({_why(c)})' if c.errno else ''}"
    ),
    Code.GREETING_DIFFERENT: lambda _: "another program answers there",
    Code.SCRIPT_NOT_READ: lambda c: f"{c.path} cannot be read: {_why(c)}",
    Code.INTERPRETER_FAILED: lambda c: (
        _why(c) if c.errno else f"it exited with {c.status}{f'; {c.text}' if c.text else ''}"
    ),
    # Decided by the plan.
    Code.PEERS_BEHIND_PROXY: lambda c: f"{c.name} is set, and no_proxy does not name {c.host}",
}

_ALLOW = (
    "let the hosts reach each other's ports by TCP; `ports: {range: 20000-21000}` keeps them in a "
    "range that a firewall can allow"
)
_ADDRESS = "perhaps that address does not lead there: `address:` of a host names another"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def _advice_on_ports(cause: Cause) -> str | None:
    if cause.errno in _NO_DESCRIPTORS:
        return "raise the limit on open files there (`ulimit -n`), or put fewer tasks on it"
    return None


def _advice_on_writing(cause: Cause) -> str:
    if cause.is_disk_full:
        return (
            "make room there, send less of it (program.sync), or set XDG_STATE_HOME for its login "
            "to another disk"
        )
    return (
        "rename it, leave it out with a .gitignore, or set XDG_STATE_HOME for its login to a "
        "folder that can have it"
    )


_ADVICE: dict[Code, Callable[[Cause], str | None]] = {
    Code.PROGRAM_NOT_FOUND: lambda _: _CHECK_PROGRAM,
    Code.PORT_TAKEN: lambda _: "end what holds it, or give another address in `cluster`",
    Code.PORT_HELD_BY_JOB: lambda _: "end what holds it, or give another address in `cluster`",
    Code.PORT_PRIVILEGED: lambda _: "give another address in `cluster`",
    Code.PORT_NOT_HELD: _advice_on_ports,
    Code.FREE_PORTS_NOT_HELD: _advice_on_ports,
    Code.TOO_FEW_FREE_PORTS: lambda _: "widen `ports: {range: …}`",
    Code.FILE_NOT_WRITTEN: _advice_on_writing,
    Code.CONNECTION_REFUSED: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.CONNECTION_TIMED_OUT: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.NO_ROUTE: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.CONNECTION_FAILED: lambda _: _ADDRESS,
    Code.NAME_NOT_RESOLVED: lambda _: (
        "name it in DNS or in /etc/hosts on every host, or give the hosts' `address:`"
    ),
    Code.GREETING_MISSING: lambda _: (
        f"something in between accepts connections, such as a proxy or a gateway; {_ADDRESS}"
    ),
    Code.GREETING_DIFFERENT: lambda _: _ADDRESS,
}
