"""Causes in words: the one place where a code becomes a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Cause, Code
from distrun.cli.text_format import format_bytes, format_count, format_names
from distrun.lifecycle.restarts import LIVED_LONG

if TYPE_CHECKING:
    from distrun.events import PreflightFound
    from distrun.preflight import Check

_MOST_HOSTS = 3


def cause_text(cause: Cause) -> str:
    """Return what failed, as a clause without a full stop."""
    return _TEXT[cause.code](cause) or "unknown"


def cause_advice(cause: Cause) -> str | None:
    """Return what to do about it, or about what led to it; None if distrun has no advice."""
    advice = _ADVICE.get(cause.code)
    own = advice(cause) if callable(advice) else advice
    if own or cause.code is Code.PREFLIGHT_FAILED:  # each check has been shown with its advice
        return own
    return next(filter(None, map(cause_advice, cause.within)), None)


def exit_text(code: int | None, signal: int | None) -> str:
    """Return how a process ended: `exited 3`, `was killed by SIGKILL`."""
    return f"exited {code}" if signal is None else f"was killed by {signal_name(signal)}"


def cause_with_advice(cause: Cause) -> str:
    """Return what failed and what to do about it, as one text."""
    text, advice = cause_text(cause), cause_advice(cause)
    if advice is None:
        return text
    if "\n" in text or cause.code is Code.HOST_UNUSABLE:
        return "".join([text, *(f"\n  {line}" for line in advice.splitlines())])
    return f"{text} ({advice})"


def _why(cause: Cause) -> str:
    return os.strerror(cause.errno)


def _inner(cause: Cause, index: int = 0) -> str:
    """Return the words of a cause that led to this one."""
    return cause_text(cause.within[index]) if index < len(cause.within) else "unknown"


def _subject(cause: Cause) -> str:
    """Return the task that a clause begins with; evidence does not repeat it."""
    return f"{cause.task} " if cause.task else ""


def _lost_with_host(cause: Cause) -> str:
    were = "was" if len(cause.tasks) == 1 else "were"
    return f"{format_names(cause.tasks)} {were} lost with {cause.host}: {_inner(cause)}"


def _restarts_used_up(cause: Cause) -> str:
    restarts = "1 restart" if cause.count == 1 else f"{cause.count} restarts"
    return f"{_inner(cause)}, after {restarts}"


def _at_host(cause: Cause) -> str:
    names_host = any(each.host == cause.host for each in cause.within)
    return f"{cause.host}: {_inner(cause)}" if cause.host and not names_host else _inner(cause)


def _exit(cause: Cause) -> str:
    return exit_text(cause.status, cause.signal or None)


def _crash(cause: Cause) -> str:
    quoted = f": {cause.text}" if cause.text else ""
    return f"{_subject(cause)}crashed: it {_exit(cause)}{quoted or _place(cause)}"


def _killed_from_outside(cause: Cause) -> str:
    if cause.status is None:
        return f"{_subject(cause)}{_exit(cause)}, from outside"
    return f"{_subject(cause)}{_as_signalled(cause)}, from outside"


def _killed_advice(cause: Cause) -> str:
    advice = "somebody sent it that signal: a scheduler, a person, a script"
    if cause.signal != 9:
        return advice
    return (
        f"{advice}; or it ran out of memory, and distrun may not read the kernel's record of that "
        "(see dmesg)"
    )


def _as_signalled(cause: Cause) -> str:
    return f"exited {cause.status}, as after {signal_name(cause.signal)}"


def _place(cause: Cause) -> str:
    return f", at {cause.name}" if cause.name else ""


def _found(clause: str) -> Callable[[Cause], str]:
    """Return the words of a finding: the task, the clause, the line of its log, the place."""
    return lambda c: f"{_subject(c)}{clause}{': ' if c.text else ''}{c.text}{_place(c)}"


def _not_started_advice(cause: Cause) -> str:
    inner = cause_advice(cause.within[0]) if cause.within else None
    return inner or _CHECK_PROGRAM


def _on(cause: Cause) -> str:
    return f"on {cause.host} " if cause.host else ""


def _port(cause: Cause) -> str:
    return f"port {cause.port} on {cause.host}" if cause.host else f"port {cause.port}"


def _within(cause: Cause) -> str:
    return "; ".join(map(cause_text, cause.within))


def _because(cause: Cause) -> str:
    return f"; {_within(cause)}" if cause.within else ""


def _listed(headline: str, cause: Cause) -> str:
    """One line for each host, without the words that the headline has already."""
    lines = [f"  {each.host}: {_within(each)}" for each in cause.within]
    return "\n".join([headline, *lines])


def _first_ones(cause: Cause) -> str:
    lines = [cause_text(each) for each in cause.within[:_MOST_HOSTS]]
    if len(cause.within) > _MOST_HOSTS:
        lines.append(f"and {len(cause.within) - _MOST_HOSTS} more hosts (`distrun doctor`)")
    return "; ".join(lines)


def _advice_within(cause: Cause, separator: str = "; ") -> str | None:
    """The advice on each cause, without repetition."""
    advice = dict.fromkeys(map(cause_advice, cause.within))
    return separator.join(each for each in advice if each is not None) or None


def _process_exit(cause: Cause) -> str:
    if cause.signal:
        return f"was killed by {signal_name(cause.signal)}"
    return f"exited with {cause.status}"


def _ssh(cause: Cause) -> str:
    """The last words of ssh in parentheses, and how it ended."""
    if cause.signal:
        return f" (ssh: {f'{cause.text}, ' if cause.text else ''}{_process_exit(cause)[4:]})"
    if cause.status is not None:
        return f" (ssh: {f'{cause.text}, ' if cause.text else ''}exit code {cause.status})"
    return f" ({cause.text})" if cause.text else ""


def _command(cause: Cause, number: int = 0) -> str:
    return cause.commands[number] if number < len(cause.commands) else "ssh"


def _folder_variable(name: str) -> str:
    """The variable that moves a folder to another disk, as advice names it."""
    return f"{name} for its login" if name.startswith("XDG") else name or "DISTRUN_HOME"


def _gpus(cause: Cause) -> str:
    return format_count(cause.count, "GPU")


def _differing(what: str, cause: Cause) -> str:
    found, holders = cause.version, format_names(cause.hosts)
    return f"{cause.name} has {what} {found}; that of {holders} has {cause.expected}"


def check_text(check: Check | PreflightFound) -> str:
    """Return what a check of the preflight found, with the host."""
    return _at_host(Cause(Code.UNCODED, host=check.host, within=(check.cause,)))


_DISK_USES = {
    "workdir": "in the working folder",
    "logs": "for logs",
    "record": "for the job's record",
}
_CHECK_PROGRAM = "check `program` in the spec; `distrun plan SPEC` shows each task's command"
_HOST = (
    "check that the host is up and reachable, and whether somebody ended distrun's agent there; "
    "a slow link needs a longer `timeouts.link`"
)
_PROXY = (
    "unset http_proxy and https_proxy for the tasks, or name the cluster's hosts in no_proxy "
    "(distrun does, unless the spec sets no_proxy itself)"
)
_CLUSTER = (
    "every task must see the same cluster and its own task entry: leave TF_CONFIG to distrun, "
    "do not set it in the script, and compare the tasks in `distrun plan SPEC`"
)
_OWNER = "check the owner and mode of what the line names, for the user who runs the tasks"
_PORT = (
    "end what holds the port (ss -ltnp shows it), or leave ports to distrun: give counts "
    "instead of addresses in `cluster`"
)
_OWN_PORT = (
    "distrun holds port {} for the task, with SO_REUSEPORT: a server other than TensorFlow's must "
    "set that option before it binds the port"
)
_LESS_MEMORY = "use a smaller batch, shuffle buffer or cache, or fewer tasks a host (`slots`)"
_UNRESPONSIVE = (
    "it was stopped by SIGSTOP or a debugger, its machine was asleep or overloaded, or the "
    "network to it is gone"
)

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


def _advice_on_copying(cause: Cause) -> str:
    if cause.name == "off":
        return "`program.sync: script` has distrun send it"
    return "launch again"


def _advice_on_versions(what: str) -> str:
    return (
        f"install the same {what} on all hosts, or name interpreters that have it with the hosts' "
        "`python`"
    )


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
        f"{f', {_gpus(c)}' if c.count else ''}, Python {c.version} for the agent"
    ),
    Code.PORTS_HELD: lambda c: f"{format_count(c.count, 'port')} held; no other to reach",
    Code.PORTS_REACHED: lambda c: f"reaches {format_count(c.count, 'port')} of the tasks",
    Code.PORTS_UNREACHABLE: lambda c: (
        f"{format_names(c.hosts)} cannot reach {c.host} at {format_names(c.addresses)}: {_inner(c)}"
    ),
    Code.PORTS_NOT_DIALLED: lambda c: f"it could not try to reach the others: {_inner(c)}",
    Code.CLOCK_AGREES: lambda _: "within a second of this machine's",
    Code.CLOCK_DIFFERS: lambda c: (
        f"its clock is {abs(c.seconds):.1f} s {'ahead of' if c.seconds > 0 else 'behind'} this "
        "machine's"
    ),
    Code.INSPECTION_FAILED: lambda c: f"programs and disks could not be inspected: {_inner(c)}",
    Code.DISK_HAS_ROOM: lambda c: (
        f"over {format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}"
    ),
    Code.DISK_NEARLY_FULL: lambda c: (
        f"{format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}, {c.path}"
    ),
    Code.WORKDIR_ENTERED: lambda c: c.path,
    Code.PROGRAM_FOUND: lambda c: c.name,
    Code.PROGRAM_UNUSABLE: _inner,
    Code.INTERPRETER_UNUSABLE: _inner,
    Code.WORKDIR_UNUSABLE: _inner,
    Code.NOT_SENT_YET: lambda c: f"{c.path} was not inspected: a launch sends it first",
    Code.SCRIPT_SAME: lambda c: c.path,
    Code.SCRIPT_UNUSABLE: _inner,
    Code.SCRIPT_DIFFERS: lambda c: f"{c.path} is not the same as on {format_names(c.hosts)}",
    Code.VERSION_FOUND: lambda c: (
        "installed, its version unknown" if c.version == "unknown" else c.version
    ),
    Code.PYTHON_NOT_RUNNING: lambda c: f"{c.name} does not run: {_inner(c)}",
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
        f"the preflight failed: {_at_host(c)}"
        f"{f', and {c.count - 1} more (`distrun events`)' if c.count > 1 else ''}"
    ),
    # Decided by the plan.
    Code.PEERS_BEHIND_PROXY: lambda c: f"{c.name} is set, and no_proxy does not name {c.host}",
    # A host could not be reached.
    Code.SSH_NOT_STARTED: lambda c: f"ssh cannot be started: {_why(c)}",
    Code.SSH_OPTION_REFUSED: lambda c: f"ssh refuses an option that it is given{_ssh(c)}",
    Code.SSH_CONFIGURATION_REFUSED: lambda c: f"ssh refuses its configuration{_ssh(c)}",
    Code.HOST_KEY_CHANGED: lambda c: f"its host key is not the one in known_hosts{_ssh(c)}",
    Code.HOST_KEY_UNKNOWN: lambda c: f"its host key is not known{_ssh(c)}",
    Code.LOGIN_REFUSED: lambda c: f"the login is refused{_ssh(c)}",
    Code.SSH_NAME_NOT_RESOLVED: lambda c: f"its name cannot be resolved{_ssh(c)}",
    Code.SSH_PORT_CLOSED: lambda c: f"nothing listens at its ssh port{_ssh(c)}",
    Code.SSH_NO_ROUTE: lambda c: f"there is no way to it{_ssh(c)}",
    Code.NO_COMMON_ALGORITHM: lambda c: (
        f"it and the ssh of this machine have no algorithm in common{_ssh(c)}"
    ),
    Code.BANNER_MISSING: lambda c: (
        f"its sshd, or the jump host or proxy on the way to it, does not answer{_ssh(c)}"
    ),
    Code.SSH_TIMED_OUT: lambda c: f"it does not answer{_ssh(c)}",
    Code.CLOSED_BY_SSHD: lambda c: f"its sshd closes the connection{_ssh(c)}",
    Code.CLOSED_BY_PROXY: lambda c: (
        f"the proxy on the way to it, or its sshd, closes the connection{_ssh(c)}"
    ),
    Code.JUMP_HOST_FAILED: lambda c: (
        f"its jump host{f' {c.name}' if c.name else ''}: {_within(c)}{_ssh(c)}"
    ),
    Code.SSH_FAILED: lambda c: f"ssh failed{_ssh(c)}",
    Code.LOGIN_TIMED_OUT: lambda c: (
        f"its login did not finish within {c.seconds:g} s"
        f"{f'; it printed: {c.text}' if c.text else ''}"
    ),
    Code.PYTHON_MISSING: lambda c: f"there is no python3 on it{_ssh(c)}",
    Code.PYTHON_TOO_OLD: lambda c: (
        f"{f'python3 is {c.name},' if c.name else 'its python3 is'} too old for distrun's agent"
    ),
    Code.PYTHON_NOT_EXECUTABLE: lambda c: f"its python3 cannot be executed{_ssh(c)}",
    Code.ACCOUNT_RUNS_NO_COMMANDS: lambda c: f"its account runs no commands{_ssh(c)}",
    Code.INPUT_TAKEN_BY_LOGIN: lambda c: f"what is sent to it does not reach Python there{_ssh(c)}",
    Code.REMOTE_DISK_FULL: lambda c: f"a disk there is full{_ssh(c)}",
    Code.AGENT_NOT_STARTED: lambda c: (
        f"its agent cannot be started: {_why(c)}"
        if c.errno
        else f"the agent could not start there{_ssh(c)}"
    ),
    Code.AGENT_NOT_CONFIGURED: _within,
    Code.HOST_UNUSABLE: lambda c: f"{c.host} cannot be used: {_within(c)}",
    Code.HOSTS_UNUSABLE: lambda c: _listed(f"{len(c.within)} of {c.count} hosts cannot be used", c),
    # The link to an agent was lost, or the agent ended.
    Code.AGENT_EXITED: lambda c: f"its agent {_process_exit(c)}{f' ({c.text})' if c.text else ''}",
    Code.AGENT_SHUT_DOWN: lambda _: "its agent ended",
    Code.AGENT_NOT_NEEDED: lambda _: "it is no longer needed",
    Code.AGENT_GONE: lambda c: (
        f"its agent is gone{_because(c)}: the host was restarted, or out of reach for longer than "
        "timeouts.link"
    ),
    Code.AGENT_ABANDONED: lambda c: (
        "it is out of reach, and its tasks go on (timeouts.link: off): end them there"
        f"{f', with kill -9 {c.pid}, its agent' if c.pid else ''}"
    ),
    Code.SSH_ENDED: lambda c: f"ssh: {c.text}" if c.text else f"ssh {_process_exit(c)}",
    Code.SSH_NOT_ANSWERED: lambda _: "no answer to ssh",
    Code.SSH_NOT_ENDED: lambda _: "ssh does not end",
    Code.HEARTBEAT_MISSING: lambda _: "no sign of life",
    Code.HOST_SILENT_TOO_LONG: lambda c: (
        f"no sign of life for {c.seconds:g} s (timeouts.link){_because(c)}"
    ),
    # The logs of a host are not all here.
    Code.LOG_PART_MISSING: lambda c: f"a part of {c.path} is missing",
    Code.LOG_COPY_NOT_WRITTEN: lambda c: f"the copy of {c.path} cannot be written: {_why(c)}",
    Code.LOGS_LEFT_ON_HOST: lambda c: f"{_within(c)}; all of them are in {c.path} on {c.host}",
    # Hosts cannot have the program's files.
    Code.FILES_REFUSED: lambda c: f"{c.host} cannot have the program's files: {_within(c)}",
    Code.FILES_REFUSED_BY_HOSTS: lambda c: _listed(
        f"{len(c.within)} hosts cannot have the program's files", c
    ),
    # Hosts cannot be prepared for a job, or the job cannot go on.
    Code.ONE_MACHINE_TWICE: lambda c: (
        f"port {c.port} is wanted on {c.name} and on {c.host}: one machine"
    ),
    Code.PORTS_REFUSED: _within,
    Code.HOST_NOT_PREPARED: lambda c: f"{c.host} cannot be prepared: {_within(c)}",
    Code.NO_HOST_ANSWERED: lambda _: "no host answered",
    Code.SEVERAL: _first_ones,
    Code.SPEC_INVALID: lambda c: c.text,
    Code.PLAN_NOT_WRITTEN: lambda c: f"the plan {c.path} cannot be written: {_why(c)}",
    Code.RECORD_NOT_WRITTEN: lambda c: f"the job's record {c.path} cannot be written: {_why(c)}",
    Code.JOB_FOLDER_NOT_CREATED: lambda c: (
        f"the job's folder {c.path} cannot be created: {_why(c)}"
    ),
    # TensorBoard ended, or was not started.
    Code.TENSORBOARD_WITHOUT_HOST: lambda _: "is not started: no task runs on this machine",
    Code.TENSORBOARD_NOT_STARTED: lambda c: (
        f"could not be started: {_within(c) if c.within else _why(c)}"
    ),
    Code.TENSORBOARD_EXITED: lambda c: (
        f"ended by itself ({signal_name(c.signal) if c.signal else c.status}); see {c.path}"
    ),
    # Somebody asked for the job's end.
    Code.STOPPED_BY_COMMAND: lambda c: c.name,
    Code.LAUNCH_SIGNALLED: lambda c: signal_name(c.signal),
    Code.OUTPUT_READER_GONE: lambda _: "the end of its output's reader",
    Code.SUPERVISOR_SIGNALLED: lambda c: f"{signal_name(c.signal)} to its supervisor",
    Code.LAUNCH_COMMAND_DIED: lambda _: "the death of its launch command",
    # How a task ended.
    Code.TASK_EXITED: lambda c: f"{_subject(c)}exited {c.status}",
    Code.TASK_KILLED: lambda c: f"{_subject(c)}was killed by {signal_name(c.signal)}",
    Code.TASK_EXITED_EARLY: lambda c: f"{_subject(c)}exited 0 before the chief had finished",
    Code.TASK_NOT_STARTED: lambda c: f"{_subject(c)}could not be started: {_inner(c)}",
    Code.TASKS_LOST_WITH_HOST: _lost_with_host,
    Code.LOST_WITH_HOST: lambda c: f"lost with its host: {_inner(c)}",
    Code.EXITED_AS_SIGNALLED: _as_signalled,
    # What became of a job or a host.
    Code.JOB_SUCCEEDED: lambda _: "it succeeded",
    Code.JOB_STOPPED: lambda c: f"stopped by {_inner(c)}",
    Code.RESTARTS_USED_UP: _restarts_used_up,
    Code.RESTART_EXCLUDED: lambda c: f"{_inner(c)}, after which restart.never_on allows no restart",
    Code.RESTART_IMPOSSIBLE: lambda c: (
        f"{_inner(c)}; {c.task} cannot restart there, as it must after {_inner(c, 1)}"
    ),
    Code.HOST_LOST: lambda c: f"{c.host} was lost: {_inner(c)}",
    Code.HOST_FAILED: lambda c: f"{c.host} cannot go on: {_inner(c)}",
    Code.START_TIMED_OUT: lambda c: (
        f"not started within timeouts.start, {c.seconds:g} s: "
        f"{format_names(c.tasks) or 'its hosts'}"
    ),
    Code.RUN_TIMED_OUT: lambda c: f"it ran longer than timeouts.run, {c.seconds:g} s",
    Code.STALLED: lambda c: f"no progress within timeouts.stall, {c.seconds:g} s",
    # What a verdict has found.
    Code.COLLECTIVES_LATE: _found("created its strategy after TensorFlow was in use"),
    Code.KERAS_3_USED: _found("used Keras 3 with a strategy that needs Keras 2"),
    Code.TF_CONFIG_MISMATCH: _found("has a TF_CONFIG that does not match that of the others"),
    Code.TF_CONFIG_REFUSED: _found("has a TF_CONFIG that TensorFlow does not accept"),
    Code.MODULE_NOT_RUNNABLE: _found("has no program to run"),
    Code.MODULE_NOT_IMPORTED: _found("could not import a module"),
    Code.LIBRARY_NOT_LOADED: _found("could not load a library"),
    Code.SCRIPT_NOT_FOUND: _found("has no program to run"),
    Code.ARGUMENTS_REFUSED: _found("did not accept its arguments"),
    Code.PERMISSION_REFUSED: _found("was refused permission"),
    Code.GPU_MEMORY_EXHAUSTED: _found("ran out of GPU memory"),
    Code.MEMORY_EXHAUSTED: _found("ran out of memory"),
    Code.DISK_EXHAUSTED: _found("found the disk full"),
    Code.PORT_IN_USE: _found("found a port taken"),
    Code.OWN_PORT_IN_USE: _found("found a port taken"),
    Code.SOME_PORT_IN_USE: _found("found a port taken"),
    Code.DATA_EXHAUSTED: _found("ran out of data"),
    Code.VALUES_NOT_FINITE: _found("got values that are not finite"),
    Code.PROXY_ANSWERED: _found("reached its peers only through a proxy"),
    Code.PEERS_LOST: _found("lost its peers"),
    Code.EXCEPTION_RAISED: lambda c: f"{_subject(c)}failed with {c.text}{_place(c)}",
    Code.INTERRUPTED: _found("was interrupted by SIGINT"),
    Code.KILLED_FOR_MEMORY: lambda c: (
        f"{_subject(c)}ran out of memory: the kernel's OOM killer ended it on {c.host}"
    ),
    Code.KILLED_FROM_OUTSIDE: _killed_from_outside,
    Code.PREEMPTED: lambda c: f"{_subject(c)}was preempted: it {_exit(c)}",
    Code.CRASHED: _crash,
    Code.SHELL_FAILED: lambda c: (
        f"{_subject(c)}exited {c.status}, as a shell does if it cannot run a program"
    ),
    Code.EXITED_BY_ITSELF: lambda c: f"{_subject(c)}exited {c.status} by itself",
    Code.EXITED_WHILE_NEEDED: _found("exited 0 while the others still needed it"),
    Code.SUSPENDED: _found("did not run: it was suspended"),
    Code.NOT_ANSWERING: _found("no longer answered"),
    Code.SERVED_ELSEWHERE: lambda c: (
        f"{_subject(c)}served at {c.text} instead of {c.name}: its TF_CONFIG does not match "
        "that of the others"
    ),
    Code.WAITED_FOR_OTHERS: lambda c: (
        f"{_subject(c)}waited for {c.text} tasks to connect, but the job has {c.count}: its "
        "TF_CONFIG does not match that of the others"
    ),
    Code.BEHIND_PROXY: lambda c: (
        f"{_subject(c)}reaches its peers only through a proxy: {_inner(c)}"
    ),
    Code.RECORD_REMOVED: lambda c: (
        f"{_subject(c)}could not be started: the record was removed while the job ran: {_inner(c)}"
    ),
    Code.JOB_DID_NOT_START: lambda c: (
        f"the job did not start within timeouts.start, {c.seconds:g} s"
    ),
    Code.JOB_DID_NOT_END: lambda c: f"the job did not end within timeouts.run, {c.seconds:g} s",
    Code.JOB_DISK_FULL: _at_host,
    Code.NO_OUTPUT: lambda _: "nothing but what TensorFlow logs",
    Code.VERDICT_MISSING: _inner,
    Code.UNCODED: lambda c: c.text or "unknown",
}

_ADVICE: dict[Code, str | Callable[[Cause], str | None]] = {
    # A task's program could not be executed.
    Code.PROGRAM_NOT_FOUND: _CHECK_PROGRAM,
    Code.WORKDIR_NOT_ENTERED: (
        "check whether `program.workdir` exists on its host, or was removed while the job ran"
    ),
    # An agent, its ports and the program's files.
    Code.PORT_TAKEN: "end what holds it, or give another address in `cluster`",
    Code.PORT_HELD_BY_JOB: "end what holds it, or give another address in `cluster`",
    Code.PORT_PRIVILEGED: "give another address in `cluster`",
    Code.PORT_NOT_HELD: _advice_on_ports,
    Code.FREE_PORTS_NOT_HELD: _advice_on_ports,
    Code.TOO_FEW_FREE_PORTS: "widen `ports: {range: …}`",
    Code.FILE_NOT_WRITTEN: _advice_on_writing,
    Code.CONNECTION_REFUSED: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.CONNECTION_TIMED_OUT: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.NO_ROUTE: lambda _: f"{_ALLOW}; {_ADDRESS}",
    Code.CONNECTION_FAILED: _ADDRESS,
    Code.NAME_NOT_RESOLVED: lambda _: (
        "name it in DNS or in /etc/hosts on every host, or give the hosts' `address:`"
    ),
    Code.GREETING_MISSING: lambda _: (
        f"something in between accepts connections, such as a proxy or a gateway; {_ADDRESS}"
    ),
    Code.GREETING_DIFFERENT: _ADDRESS,
    # A check of the preflight.
    Code.PORT_NOT_LISTENING: "does another program listen there?",
    Code.PORTS_NOT_DIALLED: "is the host overloaded?",
    Code.CLOCK_DIFFERS: ("logs are merged by time: set the clocks by NTP (timedatectl, chronyc)"),
    Code.INSPECTION_FAILED: "a file system there may hang: does `df` end?",
    Code.DISK_NEARLY_FULL: lambda c: f"make room on the disk of {c.path}",
    Code.WORKDIR_UNUSABLE: (
        "make it there, or name one with program.workdir or the host's `workdir`"
    ),
    Code.INTERPRETER_UNUSABLE: (
        "install it there, or name another with program.python or the host's `python`"
    ),
    Code.PROGRAM_UNUSABLE: "install it there, or correct program.command",
    Code.SCRIPT_UNUSABLE: lambda c: f"copy it to the hosts that lack it; {_advice_on_copying(c)}",
    Code.SCRIPT_DIFFERS: lambda c: (
        f"copy it anew to the hosts where it differs; {_advice_on_copying(c)}"
    ),
    Code.PYTHON_NOT_RUNNING: ("program.python or the host's `python` names the interpreter"),
    Code.PYTHON_SLOW: "does it start at once there? Its disk may be slow",
    Code.PYTHON_DIFFERS: _advice_on_versions("Python"),
    Code.TENSORFLOW_DIFFERS: _advice_on_versions("TensorFlow"),
    Code.TENSORFLOW_MISSING: lambda c: (
        "install it there, or name an interpreter that has it with the host's `python`"
        if c.hosts
        else None
    ),
    Code.PROXY_BETWEEN_HOSTS: lambda c: (
        f"add them to no_proxy (no_grpc_proxy), or set {c.name} to nothing under program.env"
    ),
    # A host could not be reached.
    Code.SSH_NOT_STARTED: lambda _: "install OpenSSH's client",
    Code.SSH_OPTION_REFUSED: lambda _: (
        "correct ssh.options: ssh_config(5) has the options and what they can be"
    ),
    Code.SSH_CONFIGURATION_REFUSED: lambda _: (
        "correct that line, or name another file with ssh.config_file"
    ),
    Code.HOST_KEY_CHANGED: lambda c: (
        f"if it was set up anew, `{_command(c, 1)}` and `{_command(c)}` take the new key; if not, "
        "somebody may be in between"
    ),
    Code.HOST_KEY_UNKNOWN: lambda c: (
        f"log in once by hand, `{_command(c)}`, and compare the key it shows"
    ),
    Code.LOGIN_REFUSED: lambda c: (
        f"`{_command(c)} true` must work without asking: ssh-copy-id puts your key there, ssh-add "
        "unlocks it, ssh.user and ssh.identity_file say whose"
    ),
    Code.SSH_NAME_NOT_RESOLVED: lambda _: "correct it under hosts, or name it in ~/.ssh/config",
    Code.SSH_PORT_CLOSED: lambda _: "is sshd running there, and at the port in ssh.port?",
    Code.SSH_NO_ROUTE: lambda _: "is it switched on, and the network (VPN) up?",
    Code.NO_COMMON_ALGORITHM: lambda _: (
        "allow one that it offers, as in `ssh: {options: {HostKeyAlgorithms: +ssh-rsa}}`, or "
        "bring its sshd up to date"
    ),
    Code.BANNER_MISSING: lambda _: (
        "are all of them up, and no firewall in between? ssh.connect_timeout waits longer"
    ),
    Code.SSH_TIMED_OUT: lambda _: (
        "is it switched on, and no firewall in between? ssh.connect_timeout waits longer"
    ),
    Code.CLOSED_BY_SSHD: lambda _: (
        "its log (journalctl -u ssh) says why; MaxStartups or AllowUsers in sshd_config may"
    ),
    Code.CLOSED_BY_PROXY: lambda c: (
        f"`{_command(c)} true` must work; what leads there is the ProxyCommand or ProxyJump of "
        "~/.ssh/config or ssh.options"
    ),
    Code.JUMP_HOST_FAILED: _advice_within,
    Code.SSH_FAILED: lambda c: f"try `{_command(c)} true`",
    Code.LOGIN_TIMED_OUT: lambda c: (
        f"does `{_command(c)} echo fine` print fine at once? If not, it may be out of reach, or a "
        "shell profile there waits for something or takes the output"
    ),
    Code.PYTHON_MISSING: lambda _: "install Python 3.8 or newer there",
    Code.PYTHON_TOO_OLD: lambda _: "make a Python 3.8 or newer the first python3 in its PATH",
    Code.PYTHON_NOT_EXECUTABLE: lambda c: f"try `{_command(c)} python3 --version`",
    Code.ACCOUNT_RUNS_NO_COMMANDS: lambda c: (
        "give it a login shell there, or name another user with ssh.user: "
        f"`{_command(c)} exec true` must print nothing"
    ),
    Code.INPUT_TAKEN_BY_LOGIN: lambda c: (
        "does a shell profile there read standard input or start another shell, or the account "
        f"run another command? `echo fine | {_command(c)} cat` must print fine"
    ),
    Code.REMOTE_DISK_FULL: lambda _: "make room on it",
    Code.AGENT_NOT_STARTED: lambda c: (
        f"try `{_command(c)} python3 --version`" if c.commands else None
    ),
    Code.AGENT_NOT_CONFIGURED: lambda c: (
        f"make room there, or set {_folder_variable(c.name)} to a folder on another disk"
    ),
    Code.HOST_UNUSABLE: _advice_within,
    Code.HOSTS_UNUSABLE: lambda c: _advice_within(c, "\n"),
    Code.FILES_REFUSED: _advice_within,
    Code.FILES_REFUSED_BY_HOSTS: _advice_within,
    Code.ONE_MACHINE_TWICE: lambda _: (
        "name each machine once in `hosts`, and give each task its own port"
    ),
    Code.PORTS_REFUSED: _advice_within,
    Code.HOST_NOT_PREPARED: _advice_within,
    Code.SEVERAL: _advice_within,
    Code.SPEC_INVALID: lambda c: c.name or None,
    Code.JOB_FOLDER_NOT_CREATED: lambda _: (
        "set DISTRUN_HOME to a folder that can be written, on a disk with room"
    ),
    # How a task ended.
    Code.TASK_NOT_STARTED: _not_started_advice,
    Code.TASKS_LOST_WITH_HOST: _HOST,
    # What became of a job or a host.
    Code.HOST_LOST: _HOST,
    Code.HOST_FAILED: _HOST,
    Code.STALLED: (
        "the logs end with where each thread of each task was; a longer first step or "
        "evaluation needs a longer timeouts.stall"
    ),
    # What a verdict has found.
    Code.COLLECTIVES_LATE: (
        "create MultiWorkerMirroredStrategy at the top of the script, before any tensor, variable, "
        "dataset or model, and before anything that lists devices"
    ),
    Code.KERAS_3_USED: (
        "set `env: {TF_USE_LEGACY_KERAS: 1}` under `program` and install tf_keras: Keras 3 has no "
        "fit for several workers and loses updates with parameter servers"
    ),
    Code.TF_CONFIG_MISMATCH: _CLUSTER,
    Code.TF_CONFIG_REFUSED: _CLUSTER,
    Code.SERVED_ELSEWHERE: _CLUSTER,
    Code.WAITED_FOR_OTHERS: _CLUSTER,
    Code.MODULE_NOT_RUNNABLE: "check `program.module`: it must be importable where the tasks run",
    Code.MODULE_NOT_IMPORTED: (
        "install it for the Python that runs the tasks (`distrun plan` shows which), or set "
        "`program.python`; modules of your own must be in the script's folder or PYTHONPATH"
    ),
    Code.LIBRARY_NOT_LOADED: (
        "install the library where the tasks run, or name its folder in LD_LIBRARY_PATH under "
        "`env` of `program`"
    ),
    Code.SCRIPT_NOT_FOUND: (
        "check `program` in the spec: a script's path is relative to the spec's file"
    ),
    Code.ARGUMENTS_REFUSED: (
        "check `program.args`, the roles' own `args`, and everything after `--`"
    ),
    Code.PERMISSION_REFUSED: _OWNER,
    Code.GPU_MEMORY_EXHAUSTED: (
        "use a smaller batch or model, give each task a GPU of its own (`gpus` of its role), or "
        "set TF_FORCE_GPU_ALLOW_GROWTH=true if several share one"
    ),
    Code.MEMORY_EXHAUSTED: _LESS_MEMORY,
    Code.KILLED_FOR_MEMORY: (
        "use a smaller batch, shuffle buffer or cache, fewer tasks a host (`slots`), or raise the "
        "memory limit of the cgroup or container"
    ),
    Code.DISK_EXHAUSTED: "make room where it writes (df -h), or have it write elsewhere",
    Code.PORT_IN_USE: _PORT,
    Code.OWN_PORT_IN_USE: lambda c: _OWN_PORT.format(c.port),
    Code.SOME_PORT_IN_USE: lambda c: (
        f"{_PORT}; if it is {c.port}, the task's own: {_OWN_PORT.format(c.port)}"
    ),
    Code.DATA_EXHAUSTED: (
        "every worker needs as many batches as the others: repeat() the dataset and count steps, "
        "or check how it is sharded"
    ),
    Code.VALUES_NOT_FINITE: (
        "lower the learning rate, clip gradients, or inspect the sample that caused it"
    ),
    Code.PROXY_ANSWERED: _PROXY,
    Code.BEHIND_PROXY: _PROXY,
    Code.PEERS_LOST: ("check the network between the hosts, and what the other tasks printed last"),
    Code.EXCEPTION_RAISED: lambda c: f"see its traceback: distrun logs -t {c.task}",
    Code.INTERRUPTED: "somebody sent it SIGINT: a scheduler, a shell, a person",
    Code.KILLED_FROM_OUTSIDE: _killed_advice,
    Code.PREEMPTED: (
        "somebody sent it SIGTERM, perhaps a scheduler that needs the machine; with `restart` in "
        f"the spec, a preempted task costs no restart after {LIVED_LONG:g} s of life or a "
        "step reported through DISTRUN_NOTIFY"
    ),
    Code.CRASHED: lambda c: (
        "this CPU lacks instructions that a library was built for: use another build of it"
        if (c.signal or (c.status or 0) - 128) == 4
        else "a fault in native code: of a library, its build, or the driver; see its last lines"
    ),
    Code.SHELL_FAILED: "check `program` in the spec, and the commands in the script",
    Code.EXITED_BY_ITSELF: lambda c: f"see what it printed last: distrun logs -t {c.task}",
    Code.EXITED_WHILE_NEEDED: (
        "every task must take part to the end: as many steps or batches for each worker, and "
        "servers that join()"
    ),
    Code.SUSPENDED: _UNRESPONSIVE,
    Code.NOT_ANSWERING: _UNRESPONSIVE,
    Code.RECORD_REMOVED: (
        "leave the job's folder in DISTRUN_HOME alone until the job has ended: a restart writes "
        "there"
    ),
    Code.JOB_DID_NOT_START: "see where its tasks wait, or raise timeouts.start",
    Code.JOB_DID_NOT_END: "see where its tasks wait, or raise timeouts.run",
    Code.JOB_DISK_FULL: lambda c: (
        f"make room there, or set {_folder_variable(c.name)} to another disk"
    ),
}
