"""The texts of causes: the only place where a code becomes a sentence.

Most texts are templates in causes.ini. Functions below make those that need more than a
cause's fields.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Cause, Code
from distrun.job import held_package
from distrun.job.events import PreflightFound
from distrun.preflight import Check
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.words.formats import (
    format_count,
    format_host_names,
    format_names,
    format_task_names,
)

_MOST_HOSTS = 3
_INDENTED = "\n    "
_OPTIONAL = re.compile(r"\[([^][]*)\]")
_TEMPLATE = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)
_ADVICE_ON_LIMITS = {
    errno.EMFILE: (
        "raise the limit on open files (`ulimit -n`), or put fewer tasks on a host: distrun needs "
        "30 on each host, and 3 more for each task"
    ),
    errno.ENFILE: "end what has so many files open, or raise the kernel's fs.file-max",
    errno.EAGAIN: (
        "raise the limit on processes (`ulimit -u`, or pids.max of the cgroup), or end other "
        "processes of the user"
    ),
    errno.ENOMEM: "end what uses the memory, or put fewer tasks on a host",
}
_FIELD = re.compile(r"\{(\w+)")
_job_in_advice: ContextVar[str] = ContextVar("_job_in_advice", default="")
"""The id of the job that is shown, unless it is the newest one."""


def cause_text(cause: Cause) -> str:
    """Return what failed, as a clause without a full stop."""
    return _render(cause, "text", TEXT_FUNCTIONS) or "unknown"


def advise_about(job: str) -> None:
    """From now on, commands in advice name this job; with an empty id, none."""
    _job_in_advice.set(job)


def cause_advice(cause: Cause) -> str | None:
    """Return what to do about it, or about what led to it; None if distrun has no advice."""
    own = _advice_on_limit(cause) or _render(cause, "advice", ADVICE_FUNCTIONS)
    if own or cause.code is Code.PREFLIGHT_FAILED:  # each check has been shown with its advice
        return own
    return next(filter(None, map(cause_advice, cause.within)), None)


def error_text(number: int) -> str:
    """Return what an error number means."""
    if number == errno.EAGAIN:  # of fork and clone
        return "a limit on processes is reached"
    if number == errno.ENXIO:
        return "it is a named pipe, a socket or a device"
    return os.strerror(number)


def advice_on_error(number: int) -> str | None:
    """Return what to do if a system call failed by a limit; None for other error numbers."""
    return _ADVICE_ON_LIMITS.get(number)


def _advice_on_limit(cause: Cause) -> str | None:
    within = map(_advice_on_limit, cause.within)
    return advice_on_error(cause.errno) or next(filter(None, within), None)


def cause_with_advice(cause: Cause) -> str:
    """Return what failed and what to do about it, as one text."""
    text, advice = cause_text(cause), cause_advice(cause)
    if advice is None:
        return text
    if "\n" in text or cause.code is Code.HOST_UNUSABLE:
        return "".join([text, *(f"\n  {line}" for line in advice.splitlines())])
    return f"{text} ({advice})"


def exit_text(code: int | None, signal: int | None) -> str:
    """Return how a process ended: `exited 3`, `was killed by SIGKILL`."""
    return f"exited {code}" if signal is None else f"was killed by {signal_name(signal)}"


def check_text(check: Check | PreflightFound) -> str:
    """Return what a check of the preflight found, with the host."""
    return _at_host(Cause(Code.UNCODED, host=check.host, within=(check.cause,)))


def _read_templates() -> str:
    return held_package.read(str(Path(__file__).with_suffix(".ini"))).decode("utf-8")


@functools.cache
def templates() -> Mapping[str, Mapping[str, str]]:
    """Return the templates of each code: its `text` and its `advice`."""
    # A failed job's launch waits for this; configparser takes five times as long.
    text = re.sub(r"\n +", " ", _read_templates())
    sections = (section.partition("]\n") for section in text.split("\n[")[1:])
    return {code: dict(_TEMPLATE.findall(lines)) for code, _, lines in sections}


class _Fields(dict[str, Any]):
    """The fields of a cause, and what is derived from them, by the names that templates use."""

    def __init__(self, cause: Cause) -> None:
        super().__init__()
        self._cause = cause

    def __missing__(self, name: str) -> Any:
        derive = _DERIVED.get(name)
        return getattr(self._cause, name) if derive is None else derive(self._cause)


def _render(
    cause: Cause, kind: str, functions: Mapping[Code, Callable[[Cause], str | None]]
) -> str | None:
    cause = _without_controls(cause)
    if cause.code in functions:
        return functions[cause.code](cause)
    template = templates().get(cause.code.value, {}).get(kind)
    if template is None:
        return None
    fields = _Fields(cause)

    def resolve(optional: re.Match[str]) -> str:
        return optional[1] if all(fields[name] for name in _FIELD.findall(optional[1])) else ""

    return _OPTIONAL.sub(resolve, template).format_map(fields)


def _without_controls(cause: Cause) -> Cause:
    """The cause with control characters escaped and the lines of other programs' texts indented.

    So no text of a host or a program looks like a line of distrun's.
    """
    changes: dict[str, Any] = {}
    for name, value in cause._asdict().items():
        if isinstance(value, str) and not value.isprintable() and name != "code":
            lines = value.split("\n") if name == "text" else [value]
            changes[name] = _INDENTED.join(map(printable, lines))
        elif isinstance(value, tuple) and name != "within" and not "".join(value).isprintable():
            changes[name] = tuple(map(printable, value))
    return cause._replace(**changes) if changes else cause


# What templates name ------------------------------------------------------------------------


def _error(cause: Cause) -> str:
    return error_text(cause.errno) if cause.errno else ""


_SENTENCES = (
    *(Code.SLURM_CANCELLED, Code.SLURM_TIME_LIMIT, Code.SLURM_OUT_OF_MEMORY),
    *(Code.SLURM_PREEMPTED, Code.SLURM_NODE_FAILED),
)
"""Causes of a stop whose words are no name of who has stopped the job."""


def _inner(cause: Cause, index: int = 0) -> str:
    """Return the words of a cause that led to this one."""
    return cause_text(cause.within[index]) if index < len(cause.within) else "unknown"


def by_cause(cause: Cause) -> str:
    """Return the end of a sentence that says that something was stopped."""
    return f"{':' if cause.code in _SENTENCES else ' by'} {cause_text(cause)}"


def _by_inner(cause: Cause) -> str:
    return by_cause(cause.within[0]) if cause.within else " by unknown"


def _within(cause: Cause) -> str:
    return "; ".join(map(cause_text, cause.within))


def _at_host(cause: Cause) -> str:
    names_host = any(each.host == cause.host for each in cause.within)
    return f"{cause.host}: {_inner(cause)}" if cause.host and not names_host else _inner(cause)


def _first_within(cause: Cause) -> str:
    lines = [cause_text(each) for each in cause.within[:_MOST_HOSTS]]
    if len(cause.within) > _MOST_HOSTS:
        lines.append(f"and {len(cause.within) - _MOST_HOSTS} more hosts (`distrun doctor`)")
    return "; ".join(lines)


def _advice_within(cause: Cause, separator: str = "; ") -> str:
    """Return the advice on each cause, without repetition."""
    advice = dict.fromkeys(map(cause_advice, cause.within))
    return separator.join(each for each in advice if each is not None)


def _process_exit(cause: Cause) -> str:
    if cause.signal:
        return f"was killed by {signal_name(cause.signal)}"
    return f"exited with {cause.status}"


def _ssh(cause: Cause) -> str:
    """Return the last words of ssh in parentheses, and how it ended."""
    said = f"{cause.text}, " if cause.text else ""
    if cause.signal:
        return f" (ssh: {said}killed by {signal_name(cause.signal)})"
    if cause.status is not None:
        return f" (ssh: {said}exit code {cause.status})"
    return f" ({cause.text})" if cause.text else ""


def _command(cause: Cause, number: int = 0) -> str:
    return cause.commands[number] if number < len(cause.commands) else "ssh"


def _searched_folder(cause: Cause) -> str:
    if "/" not in cause.name:
        return " in PATH"
    return f" in {cause.path}" if cause.path and not cause.name.startswith("/") else ""


def _place(cause: Cause) -> str:
    return f", at {cause.name}" if cause.name else ""


def _move_logs(cause: Cause) -> str:
    variable = _DERIVED["folder_variable"](cause)
    if Code.LOGS_NOT_LIMITED in (cause.code, *(each.code for each in cause.within)):
        return (
            f"set {variable} to a folder on a file system that can, such as ext4, XFS, Btrfs or "
            "tmpfs, or remove logs.max_size"
        )
    return f"make room there, or set {variable} to a folder on another disk"


_DISK_USES = {
    "workdir": "in the working folder",
    "logs": "for logs",
    "record": "for the job's record",
}
_DERIVED: dict[str, Callable[[Cause], Any]] = {
    "addresses": lambda c: format_names(c.addresses),
    "advice_lines": lambda c: _advice_within(c, "\n"),
    "advice_within": _advice_within,
    "all_hosts": lambda c: format_host_names(c.hosts or (c.host,)),
    "at_host": _at_host,
    "because": lambda c: f"; {_within(c)}" if c.within else "",
    "clock": lambda c: f"{abs(c.seconds):.1f} s {'ahead of' if c.seconds > 0 else 'behind'}",
    "command": _command,
    "command_2": lambda c: _command(c, 1),
    "copying": lambda c: (
        "`program.sync: script` has distrun send it" if c.name == "off" else "launch again"
    ),
    "deciders": lambda c: "the chief" if c.tasks in ((), ("chief:0",)) else format_names(c.tasks),
    "cores": lambda c: f"{c.text} {'core' if c.text == '1' else 'cores'}",
    "disk_use": lambda c: _DISK_USES.get(c.name, c.name),
    "error": _error,
    "allowed": lambda c: format_count(c.count, "restart") if c.count else "no restart",
    "exit_status": lambda c: _exit_status(c.status),
    "exit": lambda c: exit_text(c.status, c.signal or None),
    "first_within": _first_within,
    "folder_variable": lambda c: (
        f"{c.name} for its login" if c.name.startswith("XDG") else c.name or "DISTRUN_HOME"
    ),
    "gpus": lambda c: format_count(c.count, "GPU") if c.count else "",
    "hosts": lambda c: format_names(c.hosts),
    "hosts_listed": lambda c: len(c.within),
    "in_path": _searched_folder,
    "in_range": lambda c: (
        "from {0} to {2}".format(*c.text.partition("-")) if c.text else "on this host"
    ),
    "by_inner": _by_inner,
    "inner": _inner,
    "inner_2": lambda c: _inner(c, 1),
    "lines_within": lambda c: "".join(
        f"\n  {printable(each.host)}: {_within(each)}" for each in c.within
    ),
    "lookup": lambda c: c.text or f"no answer within {c.seconds:g} s",
    "job": lambda _: _job_in_advice.get(),
    "move_logs": _move_logs,
    "more_checks": lambda c: _more_checks(c.count - 1),
    "on_host": lambda c: f"on {c.host} " if c.host else "",
    "place": _place,
    "port_on_host": lambda c: f"port {c.port}" + (f" on {c.host}" if c.host else ""),
    "ports": lambda c: format_count(c.count, "port"),
    "ports_cannot": lambda c: "no port can" if c.total == 1 else f"{c.total} ports cannot",
    "process_exit": _process_exit,
    "use_keras_2": lambda c: (
        "`program.keras: 2` selects tf.keras only: write `from tensorflow import keras` instead of "
        "`import keras`, and do not set TF_USE_LEGACY_KERAS in the program"
        if c.version == "2"
        else "set `program.keras: 2` and install tf_keras for the Python that runs the tasks"
    ),
    "them": lambda c: "them" if ", " in c.text else "it",
    "user_names": lambda c: c.text + (f" and {c.count - 3} more" if c.count > 3 else ""),
    "quote": lambda c: f"{': ' if c.text else ''}{c.text}{_place(c)}",
    "times": lambda c: format_count(c.count, "time"),
    "restarts": lambda c: format_count(c.count, "restart"),
    "sender": lambda c: f"process {c.pid} of user {c.count}" if c.pid else "an unseen process",
    "served_at": lambda c: c.text or f"port {c.port}",
    "signal_name": lambda c: signal_name(c.signal),
    "signal_or_status": lambda c: signal_name(c.signal) if c.signal else c.status,
    "size": lambda c: format_bytes(c.count),
    "ssh": _ssh,
    # Evidence does not repeat the task that a clause begins with.
    "subject": lambda c: f"{c.task} " if c.task else "",
    "tasks": lambda c: format_names(c.tasks),
    "child_advice": lambda c: (
        f"memory ran out{'' if c.within else ', perhaps (see dmesg)'}: use fewer worker processes, "
        "a smaller batch or cache"
        if c.signal == signal.SIGKILL
        else "a fault in native code of the child: see the lines that it printed last"
    ),
    "check_args": lambda c: (
        "check the arguments after the script; options of `distrun run` stand before it: "
        "distrun run -n 2 train.py --epochs 3"
        if c.path
        else "check `program.args`, the roles' own `args`, and everything after `--`"
    ),
    "all_inner": lambda c: "; ".join(map(cause_text, c.within)),
    "task_names": lambda c: format_task_names(c.tasks),
    "processes": lambda c: "1 process" if c.count == 1 else f"{c.count} processes",
    "tf_config_fault": lambda c: (
        f"the program sets TF_CONFIG, at {c.path}"
        if c.path
        else "its TF_CONFIG does not match that of the others"
    ),
    "tasks_on_hosts": lambda c: " and ".join(
        f"{task} on {host}" for task, host in zip(c.tasks, c.hosts, strict=False)
    ),
    "were": lambda c: "was" if len(c.tasks) == 1 else "were",
    "within": _within,
}


# Words that depend on more than that --------------------------------------------------------


def _interpreter_failed(cause: Cause) -> str:
    said = f"; {cause.text}" if cause.text else ""
    return _error(cause) or f"it exited with {cause.status}{said}"


def _tensorflow_missing(cause: Cause) -> str:
    if not cause.hosts:
        return f"{cause.name} has none, as on every host"
    return f"{cause.name} there has no TensorFlow; that of {format_names(cause.hosts)} has"


def _agent_not_started(cause: Cause) -> str:
    if cause.errno:
        return f"its agent cannot be started: {_error(cause)}"
    return f"the agent could not start there{_ssh(cause)}"


def _more_checks(count: int) -> str:
    job = _job_in_advice.get()
    return f", and {count} more (`distrun events{job and ' '}{job}`)" if count > 0 else ""


def _crashed(cause: Cause) -> str:
    how, quote = _DERIVED["exit"](cause), _DERIVED["quote"](cause)
    return f"{_DERIVED['subject'](cause)}crashed: it {how}{quote}"


def _exit_status(status: int | None) -> str:
    """An exit code, with the signal that it stands for; a stall has none."""
    if status is None:
        return "a stall"
    name = signal_name(status - 128) if 128 < status <= 128 + 64 else ""
    return f"exit code {status} ({name})" if name else f"exit code {status}"


def _killed_from_outside(cause: Cause) -> str:
    how = _DERIVED["exit"](cause)
    if cause.status is not None:
        how = cause_text(cause._replace(code=Code.EXITED_AS_SIGNALLED))
    return f"{_DERIVED['subject'](cause)}{how}, from outside"


def _collectives_mismatched(cause: Cause) -> str:
    """Name the operations and types that TensorFlow gives as numbers."""

    def named(match: re.Match[str]) -> str:
        names = _COLLECTIVES if match[1] == "type" else _DATA_TYPES
        name = names.get(int(match[2]))
        return f"{match[0]} ({name})" if name else match[0]

    quoted = _NUMBERED_TYPE.sub(named, cause.text)
    return (
        f"the collectives of the tasks do not match{_DERIVED['quote'](cause._replace(text=quoted))}"
    )


def _advice_on_kill(cause: Cause) -> str:
    advice = "somebody sent it that signal: a scheduler, a person, a script"
    if cause.signal != signal.SIGKILL:
        return advice
    return (
        f"{advice}; or it ran out of memory, and distrun may not read the kernel's record of that "
        "(see dmesg)"
    )


def _advice_on_crash(cause: Cause) -> str:
    if (cause.signal or (cause.status or 0) - 128) == signal.SIGILL:
        return "this CPU lacks instructions that a library was built for: use another build of it"
    return "a fault in native code: of a library, its build, or the driver; see its last lines"


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


def _advice_on_host(cause: Cause) -> str:
    inner = cause_advice(cause.within[0]) if cause.within else None
    return inner or templates()[Code.HOST_LOST.value]["advice"]


def _advice_on_start(cause: Cause) -> str:
    inner = cause_advice(cause.within[0]) if cause.within else None
    if cause.is_disk_full:
        return inner or "make room on the disk of distrun's folder, or set DISTRUN_HOME to another"
    return inner or templates()[Code.PROGRAM_NOT_FOUND.value]["advice"]


def _advice_on_tf_keras(cause: Cause) -> str:
    version = re.match(r"\d+\.\d+", cause.version)
    package = f'"tf_keras=={version[0]}.*"' if version else "tf_keras"
    return f"install it: {shlex.quote(cause.name)} -m pip install {package}"


_NUMBERED_TYPE = re.compile(r"\b(type|data_type) (\d+)")
_COLLECTIVES = dict(
    enumerate(("reduce", "broadcast", "gather", "permute", "all-to-all", "reduce-scatter"))
)
"""TensorFlow's CollectiveType (core/framework/collective.h)."""
_DATA_TYPES = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 14: "bfloat16", 19: "float16"}
"""Of TensorFlow's DataType (core/framework/types.proto), those that collectives reduce."""


def _order_not_answered(cause: Cause) -> str:
    if cause.name == "FileList":
        return f"it did not receive the program's files within {cause.seconds:g} s"
    order = " ".join(filter(None, (cause.name, cause.task and f"of {cause.task}")))
    return f"its agent did not answer {order or 'at all'} within {cause.seconds:g} s"


def _start_timed_out(cause: Cause) -> str:
    text = f"not started within timeouts.start, {cause.seconds:g} s: "
    if not cause.tasks:
        return f"{text}{_first_within(cause) or 'its hosts'}"
    waits = map(cause_text, cause.within[:_MOST_HOSTS])
    return _INDENTED.join([text + format_names(cause.tasks), *waits])


TEXT_FUNCTIONS: dict[Code, Callable[[Cause], str | None]] = {
    Code.INTERPRETER_FAILED: _interpreter_failed,
    Code.VERSION_FOUND: lambda c: (
        "installed, its version unknown" if c.version == "unknown" else c.version
    ),
    Code.TENSORFLOW_MISSING: _tensorflow_missing,
    Code.PYTHON_TOO_OLD: lambda c: (
        f"{f'python3 is {c.name},' if c.name else 'its python3 is'} too old for distrun's agent"
    ),
    Code.AGENT_NOT_STARTED: _agent_not_started,
    Code.SSH_ENDED: lambda c: f"ssh: {c.text}" if c.text else f"ssh {_process_exit(c)}",
    Code.TENSORBOARD_NOT_STARTED: lambda c: (
        f"could not be started: {_within(c) if c.within else _error(c)}"
    ),
    Code.START_TIMED_OUT: _start_timed_out,
    Code.TASK_NOT_READY: lambda c: (
        f"{format_names(c.tasks)} {'waits' if len(c.tasks) == 1 else 'wait'} until {c.task} "
        + (f"listens at {c.name}" if c.name else "")
        + ("prints a line" if c.count else "")
        + (f" with {c.text!r}" if c.text else "")
        + ("" if c.name or c.count else "runs")
    ),
    Code.LINE_SEARCH_BEHIND: lambda c: (
        f"the search for {repr(c.text) if c.text else 'a line'} has read {format_bytes(c.count)} "
        f"of the {format_bytes(c.total)} that {c.task} has printed"
    ),
    Code.ORDER_NOT_ANSWERED: _order_not_answered,
    Code.KILLED_FROM_OUTSIDE: _killed_from_outside,
    Code.CRASHED: _crashed,
    Code.COLLECTIVES_MISMATCHED: _collectives_mismatched,
}
ADVICE_FUNCTIONS: dict[Code, Callable[[Cause], str | None]] = {
    Code.FILE_NOT_WRITTEN: _advice_on_writing,
    Code.TENSORFLOW_MISSING: lambda c: (
        "install it there, or name an interpreter that has it with the host's `python`"
        if c.hosts
        else None
    ),
    Code.TF_KERAS_MISSING: _advice_on_tf_keras,
    Code.AGENT_NOT_STARTED: lambda c: (
        f"try `{_command(c)} python3 --version`" if c.commands else None
    ),
    Code.TASK_NOT_STARTED: _advice_on_start,
    Code.HOST_FAILED: _advice_on_host,
    Code.KILLED_FROM_OUTSIDE: _advice_on_kill,
    Code.CRASHED: _advice_on_crash,
}
