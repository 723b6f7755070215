"""Causes in words: the one place where a code becomes a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from distrun.agent.protocol import Cause, Code
from distrun.cli.text_format import format_bytes, format_count, format_names


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


def _within(cause: Cause) -> str:
    return "; ".join(map(cause_text, cause.within))


def _differing(what: str, cause: Cause) -> str:
    found, holders = cause.version, format_names(cause.hosts)
    return f"{cause.name} has {what} {found}; that of {holders} has {cause.expected}"


def check_sentence(host: str, cause: Cause) -> str:
    """What a check of the preflight found, with the host if the text does not name it."""
    text = cause_text(cause)
    return text if cause.code is Code.PORTS_UNREACHABLE else f"{host}: {text}"


_DISK_USES = {
    "workdir": "in the working folder",
    "logs": "for logs",
    "record": "for the job's record",
}
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
    # A check of the preflight.
    Code.HOST_REACHED: lambda c: (
        f"{c.text} {'core' if c.text == '1' else 'cores'}"
        f"{f', {format_count(c.count, "GPU")}' if c.count else ''}, Python {c.version} for the agent"
    ),
    Code.PORTS_HELD: lambda c: f"{format_count(c.count, 'port')} held; no other to reach",
    Code.PORTS_REACHED: lambda c: f"reaches {format_count(c.count, 'port')} of the tasks",
    Code.PORTS_UNREACHABLE: lambda c: (
        f"{format_names(c.hosts)} cannot reach {c.host} at {format_names(c.addresses)}: {_within(c)}"
    ),
    Code.PORTS_NOT_DIALLED: lambda c: f"it could not try to reach the others: {_within(c)}",
    Code.CLOCK_AGREES: lambda _: "within a second of this machine's",
    Code.CLOCK_DIFFERS: lambda c: (
        f"its clock is {abs(c.seconds):.1f} s {'ahead of' if c.seconds > 0 else 'behind'} this "
        "machine's"
    ),
    Code.INSPECTION_FAILED: lambda c: f"programs and disks could not be inspected: {_within(c)}",
    Code.DISK_HAS_ROOM: lambda c: (
        f"over {format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}"
    ),
    Code.DISK_NEARLY_FULL: lambda c: (
        f"{format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}, {c.path}"
    ),
    Code.WORKDIR_ENTERED: lambda c: c.path,
    Code.PROGRAM_FOUND: lambda c: c.name,
    Code.PROGRAM_UNUSABLE: lambda c: _within(c),
    Code.INTERPRETER_UNUSABLE: lambda c: _within(c),
    Code.NOT_SENT_YET: lambda c: f"{c.path} was not inspected: a launch sends it first",
    Code.SCRIPT_SAME: lambda c: c.path,
    Code.SCRIPT_UNUSABLE: lambda c: _within(c),
    Code.SCRIPT_DIFFERS: lambda c: f"{c.path} is not the same as on {format_names(c.hosts)}",
    Code.VERSION_FOUND: lambda c: (
        "installed, its version unknown" if c.version == "unknown" else c.version
    ),
    Code.PYTHON_NOT_RUNNING: lambda c: f"{c.name} does not run: {_within(c)}",
    Code.PYTHON_SLOW: lambda c: f"{c.name} did not report its version in time",
    Code.PYTHON_DIFFERS: lambda c: _differing("Python", c),
    Code.TENSORFLOW_DIFFERS: lambda c: _differing("TensorFlow", c),
    Code.TENSORFLOW_MISSING: lambda c: (
        f"{c.name} there has no TensorFlow; that of {format_names(c.hosts)} has"
        if c.hosts
        else f"{c.name} has none, as on every host"
    ),
    Code.PROXY_UNUSED: lambda c: f"{c.name} is not used between the hosts",
    Code.PROXY_BETWEEN_HOSTS: lambda c: (
        f"{c.name} is set and no_proxy leaves hosts of the cluster out: gRPC would go there for "
        f"{format_names(c.hosts)}"
    ),
    Code.PREFLIGHT_FAILED: lambda c: (
        f"the preflight failed: {check_sentence(c.host, c.within[0]) if c.within else ''}"
        f"{f', and {c.count - 1} more (`distrun events`)' if c.count > 1 else ''}"
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


def _advice_on_copying(cause: Cause) -> str:
    if cause.name == "off":
        return "`program.sync: script` has distrun send it"
    return "launch again"


def _advice_on_versions(what: str) -> str:
    return (
        f"install the same {what} on all hosts, or name interpreters that have it with the hosts' "
        "`python`"
    )


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
    Code.PORT_NOT_LISTENING: lambda _: "does another program listen there?",
    Code.PORTS_UNREACHABLE: lambda c: cause_advice(c.within[0]) if c.within else None,
    Code.PORTS_NOT_DIALLED: lambda _: "is the host overloaded?",
    Code.CLOCK_DIFFERS: lambda _: (
        "logs are merged by time: set the clocks by NTP (timedatectl, chronyc)"
    ),
    Code.INSPECTION_FAILED: lambda _: "a file system there may hang: does `df` end?",
    Code.DISK_NEARLY_FULL: lambda c: f"make room on the disk of {c.path}",
    Code.WORKDIR_NOT_ENTERED: lambda _: (
        "make it there, or name one with program.workdir or the host's `workdir`"
    ),
    Code.INTERPRETER_UNUSABLE: lambda _: (
        "install it there, or name another with program.python or the host's `python`"
    ),
    Code.PROGRAM_UNUSABLE: lambda _: "install it there, or correct program.command",
    Code.SCRIPT_UNUSABLE: lambda c: f"copy it to the hosts that lack it; {_advice_on_copying(c)}",
    Code.SCRIPT_DIFFERS: lambda c: (
        f"copy it anew to the hosts where it differs; {_advice_on_copying(c)}"
    ),
    Code.PYTHON_NOT_RUNNING: lambda _: (
        "program.python or the host's `python` names the interpreter"
    ),
    Code.PYTHON_SLOW: lambda _: "does it start at once there? Its disk may be slow",
    Code.PYTHON_DIFFERS: lambda _: _advice_on_versions("Python"),
    Code.TENSORFLOW_DIFFERS: lambda _: _advice_on_versions("TensorFlow"),
    Code.TENSORFLOW_MISSING: lambda c: (
        "install it there, or name an interpreter that has it with the host's `python`"
        if c.hosts
        else None
    ),
    Code.PROXY_BETWEEN_HOSTS: lambda c: (
        f"add them to no_proxy (no_grpc_proxy), or set {c.name} to nothing under program.env"
    ),
}
