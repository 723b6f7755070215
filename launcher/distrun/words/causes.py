"""Causes as sentences: what failed, and what to do about it.

No other module makes a sentence of a code. Most are in causes.txt, formatted with the fields of the
cause and those of `_NAMED`; here are those that several codes have, or that depend on more.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from distrun.agent.linux.syscalls import signal_name
from distrun.agent.protocol import Cause, Code
from distrun.job.events import PreflightFound
from distrun.preflight import Check
from distrun.spec.packages import PIP_NAMES
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.tables import read_rows, read_texts
from distrun.words.formats import (
    format_count,
    format_host_names,
    format_names,
    install_command,
    one_line,
)

Words = str | Callable[[Cause], str]

_MOST_HOSTS = 3
_INDENTED = "\n    "
_ADVICE_ON_LIMITS = {
    errno.EMFILE: (
        "raise the limit on open files (`ulimit -n`): distrun needs 30, and 4 more for each host "
        "where it is launched, 3 more for each task on a host"
    ),
    errno.ENFILE: "end what has so many files open, or raise the kernel's fs.file-max",
    errno.EAGAIN: (
        "raise the limit on processes (`ulimit -u`, or pids.max of the cgroup), or end other "
        "processes of the user"
    ),
    errno.EFBIG: "raise the limit on the size of files (`ulimit -f`)",
    errno.ENOMEM: "end what uses the memory, or put fewer tasks on a host",
}
_SENTENCES = (
    *(Code.SLURM_CANCELLED, Code.SLURM_TIME_LIMIT, Code.SLURM_OUT_OF_MEMORY),
    *(Code.SLURM_PREEMPTED, Code.SLURM_NODE_FAILED, Code.POD_OUT_OF_MEMORY),
    *(Code.POD_DELETED, Code.POD_PREEMPTED, Code.POD_ENDED),
)
"""Causes of a stop whose words are no name of who has stopped the job."""
_DISK_USES = {
    "workdir": "in the working folder",
    "logs": "for logs",
    "record": "for the job's record",
}
_CODE_IGNORED = re.compile(r"\|\||: (?:if|trap|while|until|wait|!)(?: |$)|(?<!&)&(?: |$)")
"""A line of a shell script that ignores an exit code, with `set -e`, too."""
_RAISE = "raise it: `ulimit -{0} {{hard}}` in the shell that launches, and for logins by ssh in "
_RAISE += "/etc/security/limits.conf"
_OF_CGROUP = "raise it there (docker run --{}, {} of systemd, {})"
_OF_HOST = "have root raise it (sysctl -w {name}=NUMBER), or end other programs there"
_LIMITS = {
    "pids.max": (
        "{path}/pids.max is {total}, and has refused {count}",
        _OF_CGROUP.format("pids-limit", "TasksMax", "podPidsLimit of Kubernetes"),
    ),
    "RLIMIT_NPROC": (
        "`ulimit -u` is {total} for all processes of its user, who has {count} without it",
        _RAISE.format("u"),
    ),
    "kernel.pid_max": ("{name} is {total}, and its host had {count} threads without it", _OF_HOST),
    "fs.file-max": ("{name} is {total}, and its host had {count} files open without it", _OF_HOST),
    "RLIMIT_NOFILE": ("`ulimit -n` is {total}", _RAISE.format("n")),
    "RLIMIT_AS": ("`ulimit -v` is {size}", _RAISE.format("v")),
    "RLIMIT_DATA": ("`ulimit -d` is {size}", _RAISE.format("d")),
    "RLIMIT_FSIZE": ("`ulimit -f` is {size}", _RAISE.format("f")),
    "RLIMIT_CPU": ("`ulimit -t` is {total} s", _RAISE.format("t")),
    "MemTotal": ("the host has {size}, and {used} were in use after that", ""),
    "/dev/shm": (  # noqa: S108 - no file is made there
        "{name} has {size}",
        "enlarge it (docker run --shm-size, an emptyDir of medium Memory)",
    ),
}
"""What is said of a limit, and how it is raised."""
_LIMITS["kernel.threads-max"] = _LIMITS["kernel.pid_max"]
for _name in ("memory.max", "memory.limit_in_bytes"):
    _LIMITS[_name] = (
        f"{{path}}/{_name} is {{size}}",
        _OF_CGROUP.format("memory", "MemoryMax", "`kubernetes.memory`, --mem of Slurm"),
    )
_FAULTS = {
    int(signal.SIGILL): (
        "this CPU lacks instructions that a library was built for: use another build of it"
    ),
    int(signal.SIGBUS): (
        "memory that belongs to a file has no more of it: /dev/shm or the disk is full (df -h; "
        "docker run --shm-size), or another process has cut the file off"
    ),
    int(signal.SIGPIPE): "it wrote into a pipe or a connection whose reader had ended",
    int(signal.SIGALRM): "it sets a timer (`alarm`), and the time was over",
}
"""What to do about a crash, by its signal."""
_COMMAND = re.compile(r"`[^`]*`")
_FATAL_OF_PYTHON = re.compile(r"^F.{0,60}\.py:\d+\] ")
"""Begins what absl's logging.fatal prints."""

_REMEDIES, _REFUSALS = (
    [row.partition(" => ")[::2] for row in read_rows(__spec__, name)]
    for name in ("remedies.txt", "refusals.txt")
)
"""What to do about an error, and about a refusal of kubectl, by what it says."""
_TOLD_BY_TEXT = (
    *(Code.EXCEPTION_RAISED, Code.MODULE_NOT_IMPORTED, Code.NAME_NOT_IN_MODULE),
    *(Code.GPU_UNUSABLE, Code.SCRIPT_UNREADABLE, Code.LIBRARY_NOT_LOADED, Code.CRASHED),
    *(Code.PERMISSION_REFUSED, Code.TF_CONFIG_REFUSED, Code.TENSORFLOW_1_CODE),
    *(Code.VARIABLE_NOT_SET, Code.CONTAINER_NOT_STARTED, Code.FILES_UNREACHED),
)
_LED_TO = (
    *(Code.TASKS_LOST_WITH_HOST, Code.HOST_LOST, Code.HOST_FAILED, Code.TASK_NOT_STARTED),
    *(Code.PORT_IN_USE, Code.OWN_PORT_IN_USE, Code.SOME_PORT_IN_USE, Code.JOB_DID_NOT_START),
)
"""Causes whose own advice is for want of that on what led to them."""
_NUMBERED_TYPE = re.compile(r"\b(type|data_type) (\d+)")
_COLLECTIVES = dict(
    enumerate(("reduce", "broadcast", "gather", "permute", "all-to-all", "reduce-scatter"))
)
"""TensorFlow's CollectiveType (core/framework/collective.h)."""
_DATA_TYPES = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 14: "bfloat16", 19: "float16"}
"""Of TensorFlow's DataType (core/framework/types.proto), those that collectives reduce."""
_job_in_advice: ContextVar[str] = ContextVar("_job_in_advice", default="")
"""The id of the job that is shown; empty: none is."""


def cause_text(cause: Cause) -> str:
    """Return what failed, as a clause without a full stop."""
    return _words(TEXTS, cause) or "unknown"


def restart_reason(cause: Cause) -> str:
    """Return why tasks start again. Of a lost host, the message about the loss says the rest."""
    return f"{cause.host} was lost" if cause.code is Code.HOST_LOST else cause_text(cause)


def advise_about(job: str) -> None:
    """From now on, commands in advice name this job."""
    _job_in_advice.set(job)


def cause_advice(cause: Cause) -> str | None:
    """Return what to do about it, or about what led to it; None if distrun has no advice."""
    said = _by_text(_REMEDIES, cause) if cause.code in _TOLD_BY_TEXT else ""
    own = said or _advice_on_limit(cause) or _words(ADVICE, cause)
    if cause.code is Code.PREFLIGHT_FAILED or (own and cause.code not in _LED_TO):
        return own  # of the preflight, each check has been shown with its advice
    return next(filter(None, map(cause_advice, cause.within)), own or None)


def error_words(error: Exception) -> str:
    """Return what happened, without advice, on one line: of a DistrunError or an OSError."""
    if isinstance(error, OSError):
        return printable(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    cause = getattr(error, "cause", None)
    return printable(str(error)) if cause is None else cause_text(cause)


def error_text(number: int) -> str:
    """Return what an error number means."""
    if number == errno.EAGAIN:  # of fork and clone
        return "a limit on processes is reached"
    if number == errno.ENXIO:
        return "it is a named pipe, a socket or a device"
    return os.strerror(number)


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


def by_cause(cause: Cause) -> str:
    """Return the end of a sentence that says that something was stopped."""
    return f"{':' if cause.code in _SENTENCES else ' by'} {cause_text(cause)}"


class _Fields(dict[str, Any]):
    """What a text can name: the fields of a cause, and `_NAMED`."""

    def __init__(self, cause: Cause) -> None:
        super().__init__()
        self._cause = cause

    def __missing__(self, name: str) -> Any:
        return _NAMED[name](self._cause) if name in _NAMED else getattr(self._cause, name)


def _words(table: dict[Code, Words], cause: Cause) -> str | None:
    words, cause = table.get(cause.code), _without_controls(cause)
    if isinstance(words, str):
        return one_line(words).format_map(_Fields(cause))
    return words and words(cause)


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


def _if(value: object, text: str) -> str:
    return text if value else ""


def _bandwidth(cause: Cause) -> str:
    received, sent = format_bytes(cause.count), format_bytes(cause.total)
    return f"receives up to {received}/s, sends up to {sent}/s"


def _error(cause: Cause) -> str:
    return error_text(cause.errno) if cause.errno else ""


def _inner(cause: Cause, index: int = 0) -> str:
    """The words of a cause that led to this one."""
    return cause_text(cause.within[index]) if index < len(cause.within) else "unknown"


def _within(cause: Cause) -> str:
    return "; ".join(map(cause_text, cause.within))


def _because(cause: Cause) -> str:
    return _if(cause.within, f"; {_within(cause)}")


def _at_host(cause: Cause) -> str:
    names_host = any(each.host == cause.host for each in cause.within)
    return f"{cause.host}: {_inner(cause)}" if cause.host and not names_host else _inner(cause)


def _first_within(cause: Cause) -> str:
    lines = [cause_text(each) for each in cause.within[:_MOST_HOSTS]]
    if len(cause.within) > _MOST_HOSTS:
        lines.append(f"and {len(cause.within) - _MOST_HOSTS} more hosts (`distrun doctor`)")
    return "; ".join(lines)


def _lines_within(cause: Cause) -> str:
    hosts: dict[str, list[str]] = {}
    for each in cause.within:
        hosts.setdefault(_within(each), []).append(each.host)
    return "".join(f"\n  {printable(format_host_names(own))}: {why}" for why, own in hosts.items())


def _advice_for_hosts(causes: tuple[Cause, ...]) -> str:
    """Return each advice once, behind its hosts if there is another; `HOST` stands for them."""
    hosts: dict[str, list[str]] = {}
    for each in causes:
        if advice := cause_advice(each):
            hosts.setdefault(_for_any_host(advice, each.host), []).append(each.host)
    if len(hosts) < 2:
        return "".join(advice.replace(" HOST ", f" {names[0]} ") for advice, names in hosts.items())
    return "\n".join(f"{format_host_names(names)}: {each}" for each, names in hosts.items())


def _for_any_host(advice: str, host: str) -> str:
    return _COMMAND.sub(lambda found: found[0].replace(f" {host} ", " HOST "), advice)


def _advice_within(cause: Cause) -> str:
    """The advice on each cause, without repetition."""
    return "; ".join(filter(None, dict.fromkeys(map(cause_advice, cause.within))))


def _advice_before_start(cause: Cause) -> str:
    lost = {Code.POD_DELETED, Code.POD_PREEMPTED}
    return "start it again" if {c.code for c in cause.within} & lost else _advice_within(cause)


def _advice_on_kubectl(cause: Cause) -> str:
    kinds = dict.fromkeys(re.findall(r'(\S+) "[^"]*" not found', cause.text))
    return _by_text(_REFUSALS, cause).replace("KINDS", ",".join(kinds))


def _by_text(table: list[tuple[str, str]], cause: Cause) -> str:
    """The advice behind the first pattern of a table that is in the cause's text."""
    return next((advice for said, advice in table if re.search(said, cause.text)), "")


def _advice_on_limit(cause: Cause) -> str | None:
    within = map(_advice_on_limit, cause.within)
    return _ADVICE_ON_LIMITS.get(cause.errno) or next(filter(None, within), None)


def _ssh(cause: Cause) -> str:
    """The last words of ssh in parentheses, and how it ended."""
    said = _if(cause.text, f"{cause.text}, ")
    if cause.signal:
        return f" (ssh: {said}killed by {signal_name(cause.signal)})"
    if cause.status is not None:
        return f" (ssh: {said}exit code {cause.status})"
    return _if(cause.text, f" ({cause.text})")


def _shared_connection(cause: Cause) -> str:
    return _if(
        cause.name and cause.path,
        f"; ssh shares the connection to {cause.name} among logins, which may hang ({cause.path})",
    )


def _command(cause: Cause) -> str:
    return cause.commands[0] if cause.commands else "ssh"


def _searched_folder(cause: Cause) -> str:
    if "/" not in cause.name:
        return " in PATH"
    return _if(cause.path and not cause.name.startswith("/"), f" in {cause.path}")


def _port(cause: Cause) -> str:
    return f"port {cause.port}{_if(cause.host, f' on {cause.host}')}"


def _subject(cause: Cause) -> str:
    """The task that a clause begins with; evidence does not repeat it."""
    return _if(cause.task, f"{cause.task} ")


def _exited_0(cause: Cause) -> str:
    """The task that a clause begins with, or the tasks and how far they came if they exited 0."""
    place = f"at {cause.expected}" if cause.expected else "without a step"
    return f"{format_names(cause.tasks)} exited 0 {place}: " if cause.tasks else _subject(cause)


def _exit(cause: Cause) -> str:
    return exit_text(cause.status, cause.signal or None)


def _exit_status(cause: Cause) -> str:
    """An exit code, with the signal that it stands for; a stall has none."""
    if cause.status is None:
        return "a stall"
    name = signal_name(cause.status - 128) if 128 < cause.status <= 128 + 64 else ""
    return f"exit code {cause.status}{_if(name, f' ({name})')}"


def _place(cause: Cause) -> str:
    return _if(cause.name, f", at {cause.name}")


def _quote(cause: Cause) -> str:
    found = [e for e in cause.within if e.code in (Code.RESOURCE_LIMIT, Code.PORT_TAKEN)]
    because = _because(cause._replace(within=tuple(found)))
    return f"{_if(cause.text, ': ')}{cause.text}{_place(cause)}{because}"


def _owner(cause: Cause) -> str:
    program = _if(cause.name and cause.pid, f"{cause.name} (pid {cause.pid})")
    task = cause.task + _if(cause.text, f" of the job {cause.text}")
    user = _if(cause.expected, f"{program and 'of '}user {cause.expected}")
    return " ".join(filter(None, (program, program and task and "of", task, user)))


def _advice_on_owner(cause: Cause) -> str:
    if cause.task and not cause.text:
        return "give each task a port of its own, for example one more for each DISTRUN_RANK"
    if cause.text:
        return f"wait for that job or end it (distrun kill {cause.text}), or use another port"
    where = _if(cause.host not in ("", "localhost"), f" on {cause.host}")
    how = _if(cause.pid, f" (kill {cause.pid}{where})")
    return f"end the program that has it{how}, or use another port"


def _resource_limit(cause: Cause, part: int = 0) -> str:
    """What the limit is, or how it is raised."""
    hard = cause.expected
    if part and hard == str(cause.total):
        return "use a new shell, or have root raise it in /etc/security/limits.conf"
    words = _LIMITS.get(cause.name, ("{name}", ""))
    if hard.isdigit() and "{size}" in words[0]:
        hard = str(int(hard) // 1024)  # the unit of ulimit
    return words[part].format_map(
        {
            "size": format_bytes(cause.total),
            "used": format_bytes(cause.count),
            "hard": hard,
            **cause._asdict(),
        }
    )


def _at_work(cause: Cause) -> str:
    """Which tasks were busy while the others waited, and where, if that is known."""
    were = "was" if len(cause.tasks) == 1 else "were"
    place = _if(cause.text, f" ({cause.text})")
    return f"{format_names(cause.tasks)} {were} busy{place} while the others waited"


def _elsewhere(cause: Cause) -> str:
    """Which tasks were at another line than most, or that all had ended but for a thread."""
    ended = f"; the program had ended, and waited for a thread at {cause.text}"
    return _if(cause.name, f"; unlike the others, {cause.name} was at {cause.text}") or _if(
        cause.text and not cause.tasks, ended
    )


def _raise(cause: Cause, usual: str, instead: str) -> str:
    """The advice to raise the limit that was hit, if it is known, or to do something else."""
    advice = next(map(cause_advice, cause.within), None) or usual
    return f"{advice}, or {instead}" if advice else instead


def _unhidden(cause: Cause) -> str:
    line = cause.path
    if line.endswith("(ignored)"):
        return "remove the `-` before that command of make, or make's option -i; "
    if _CODE_IGNORED.search(line):
        return f"let the shell script exit with the program's code at {line}; "
    option = "`set -eo pipefail`, which bash has," if "|" in line else "`set -e`"
    return f"write {option} at the top of the shell script; "


def _lone_call(call: str) -> str:
    such = "these calls" if " and " in call else "that call"
    return _if(call, f"{call} for some of the tasks only, and all must make {such}; ")


def _with_type_name(match: re.Match[str]) -> str:
    """A collective operation or type that TensorFlow gives as a number, with its name."""
    names = _COLLECTIVES if match[1] == "type" else _DATA_TYPES
    name = names.get(int(match[2]))
    return f"{match[0]}{_if(name, f' ({name})')}"


_FOR_LOGIN = "for its login (at the top of its ~/.bashrc, or in ~/.zshenv)"


def _folder_variable(cause: Cause) -> str:
    if cause.name.startswith("XDG"):
        return f"{cause.name} {_FOR_LOGIN}"
    return cause.name or "DISTRUN_HOME"


def _move_logs(cause: Cause) -> str:
    variable = _folder_variable(cause)
    if Code.LOGS_NOT_LIMITED in (cause.code, *(each.code for each in cause.within)):
        return (
            f"set {variable} to a folder on a file system that can, such as ext4, XFS, Btrfs or "
            "tmpfs, or remove logs.max_size"
        )
    return f"make room there, or set {variable} to a folder on another disk"


def _more_checks(count: int) -> str:
    job = _job_in_advice.get()
    return _if(count > 0, f", and {count} more (`distrun events{job and ' '}{job}`)")


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


def _tf_keras(cause: Cause) -> str:
    version = re.match(r"\d+\.\d+", cause.version)
    return f'"tf_keras=={version[0]}.*"' if version else "tf_keras"


_NAMED: dict[str, Callable[[Cause], Any]] = {
    "addresses": lambda c: format_names(c.addresses),
    "advice_within": _advice_within,
    "at_host": _at_host,
    "bandwidth": _bandwidth,
    "because": _because,
    "name_after_space": lambda c: _if(c.name, f" {c.name}"),
    "command": _command,
    "copying": lambda c: (
        "`program.sync: script` has distrun send it" if c.name == "off" else "launch again"
    ),
    "elsewhere": _elsewhere,
    "have_ended": lambda c: _if(
        all(each.code is not Code.STOP_NOT_EXECUTED for each in c.within),
        "; its tasks have ended by themselves, unless it is suspended",
    ),
    "end_shared": lambda c: _if(
        c.name and c.path,
        f"; end a shared connection that hangs with `ssh -O exit -o ControlPath={c.path} {c.name}`",
    ),
    "empty_batch": lambda c: _if(
        "shape [0" in c.text,
        "a shape that begins with 0 is an empty batch: the input of one task ended before that of "
        "the others (use `repeat()` and a number of steps); ",
    ),
    "error": _error,
    "exit": _exit,
    "exit_status": _exit_status,
    "exited_0": _exited_0,
    "failed": lambda c: len(c.within),
    "folder_variable": _folder_variable,
    "host_first": lambda c: _if(c.host, f"{c.host}: "),
    "hosts": lambda c: format_names(c.hosts),
    "inner": _inner,
    "inner_2": lambda c: _inner(c, 1),
    "reasons": lambda c: _if(c.within, f": {_within(c)}"),
    "job": lambda _: _job_in_advice.get() or "JOB",
    "lines_within": _lines_within,
    "lone_call": lambda c: _lone_call(c.path),
    "lone_call_at_work": lambda c: _lone_call(c.expected),
    "logs": lambda _: f"distrun logs {_job_in_advice.get()}".rstrip(),
    "output": lambda c: c.expected or f"{_NAMED['logs'](c)} -t {c.task}",
    "more_checks": lambda c: _more_checks(c.count - 1),
    "move_logs": _move_logs,
    "of_path": lambda c: _if(c.path, f" of {c.path}"),
    "place": _place,
    "port_on_host": _port,
    "ports": lambda c: format_count(c.count, "port"),
    "printed": lambda c: _if(c.text, f"; it printed: {c.text}"),
    "process": lambda c: c.text or (f"process {c.pid}" if c.pid else "it"),
    "quote": _quote,
    "restarts": lambda c: format_count(c.count, "restart") if c.count else "no restart",
    "room": lambda c: f"{format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}",
    "said": lambda c: _if(c.text, f": {c.text}"),
    "shared": _shared_connection,
    "signal_name": lambda c: signal_name(c.signal),
    "ssh": _ssh,
    "subject": _subject,
    "tasks": lambda c: format_names(c.tasks),
    "tasks_on_hosts": lambda c: " and ".join(
        f"{task} on {host}" for task, host in zip(c.tasks, c.hosts, strict=False)
    ),
    "other_address": lambda _: (
        "perhaps that address does not lead there: `address:` of a host names another"
    ),
    "pip": lambda c: _if(
        PIP_NAMES.issuperset(names := c.text.split(", ")), f": {install_command(c.name, *names)}"
    ),
    "them": lambda c: "them" if ", " in c.text else "it",
    "use_keras_2": lambda c: (
        "`program.keras: 2` selects tf.keras only: write `from tensorflow import keras` instead of "
        "`import keras`, and do not set TF_USE_LEGACY_KERAS in the program"
        if c.version == "2"
        else "set `program.keras: 2` (or `--set program.keras=2`) and install tf_keras for the "
        "Python that runs the tasks (for tf.keras: write `from tensorflow import keras` instead of "
        "`import keras`)"
    ),
    "unhidden": lambda c: _if(c.path, _unhidden(c)),
    "within": _within,
}
"""What texts can name besides the fields of a cause."""

_TF_COLLECTIVE_LIMIT = "`timeout_seconds` of tf.distribute.experimental.CommunicationOptions"
_OWN_CONFIG = "write `program.tf_config: mine` (or `--set program.tf_config=mine`)"

_SAID, _TO_DO = read_texts(__spec__, "causes.txt")
TEXTS: dict[Code, Words] = {
    **{Code(code): text for code, text in _SAID.items()},
    Code.PROGRAM_NOT_FOUND: lambda c: f"there is no program {c.name!r}{_searched_folder(c)}",
    Code.AGENT_FAILED: lambda c: (
        f"distrun's agent{_if(c.host, f' on {c.host}')} failed, which is a defect in distrun: "
        f"{c.text}" + _if(c.path, f"; its traceback is in {c.path}")
    ),
    Code.PROGRESS_FROM_STRANGER: lambda c: (
        f"progress that {f'process {c.pid} of user {c.count}' if c.pid else 'an unseen process'} "
        "sent is ignored: it is not a process of the task"
    ),
    Code.REPORT_UNASKED: lambda c: (
        f"its agent sent a {c.name}{_if(c.task, f' of {c.task}')} that it was not asked for"
    ),
    Code.ORDER_NOT_ANSWERED: _order_not_answered,
    Code.PORT_TAKEN: lambda c: f"{_port(c)} is taken{_if(_owner(c), f': {_owner(c)} has it')}",
    Code.FREE_PORTS_NOT_HELD: lambda c: (
        _if(c.host, f"on {c.host} ")
        + f"{'no port can' if c.total == 1 else f'{c.total} ports cannot'} be held: {_error(c)}"
    ),
    Code.TOO_FEW_FREE_PORTS: lambda c: (
        f"{_if(c.host, f'on {c.host} ')}only {c.count} of {c.total} ports "
        + ("from {0} to {2}".format(*c.text.partition("-")) if c.text else "on this host")
        + f" are free{_because(c)}"
    ),
    Code.NAME_NOT_RESOLVED: lambda c: (
        f"the name cannot be looked up there ({c.text or f'no answer within {c.seconds:g} s'})"
    ),
    Code.GREETING_MISSING: lambda c: (
        "the connection is accepted, but nothing of this job answers"
        + _if(c.errno, f" ({_error(c)})")
    ),
    Code.INTERPRETER_FAILED: lambda c: (
        _error(c) or f"it exited with {c.status}{_if(c.text, f'; {c.text}')}"
    ),
    Code.HOST_REACHED: lambda c: (
        f"{c.text} {'core' if c.text == '1' else 'cores'}"
        f"{_if(c.count, ', ' + format_count(c.count, 'GPU'))}, Python {c.version} for the agent"
    ),
    Code.CLOCK_DIFFERS: lambda c: (
        f"its clock is {abs(c.seconds):.1f} s {'ahead of' if c.seconds > 0 else 'behind'} this "
        "machine's"
    ),
    Code.GPUS_UNKNOWN: lambda c: (
        ("nvidia-smi did not answer" if c.status is None else f"nvidia-smi exited with {c.status}")
        + f"{_if(c.text, f': {c.text}')}; its GPUs are not known, and tasks get none"
    ),
    Code.VERSION_FOUND: lambda c: (
        "installed, its version unknown" if c.version == "unknown" else c.version
    ),
    Code.TENSORFLOW_MISSING: lambda c: (
        f"{c.name} there has no TensorFlow; that of {format_names(c.hosts)} has"
        if c.hosts
        else f"{c.name} has none, as on every host"
    ),
    Code.SERVERS_OPEN_TO_USERS: lambda c: (
        f"other users of the host can connect to TensorFlow's servers: {c.text}"
        + _if(c.count > 3, f" and {c.count - 3} more")
    ),
    Code.PYTHON_TOO_OLD: lambda c: (
        f"{f'python3 is {c.name},' if c.name else 'its python3 is'} too old for distrun's agent"
    ),
    Code.AGENT_NOT_STARTED: lambda c: (
        f"its agent cannot be started: {_error(c)}"
        if c.errno
        else f"the login {_exit(c)} before the agent could start"
        f"{_if(c.text, f'; it printed last: {c.text}')}"
    ),
    Code.AGENT_EXITED: lambda c: f"its agent {_exit(c)}{_if(c.text, f' ({c.text})')}",
    Code.AGENT_GONE: lambda c: (
        f"its agent is gone{_because(c)}"
        + _if(
            all(each.code is not Code.POD_ENDED for each in c.within),
            ": the host was restarted, or could not be reached until its tasks were stopped, some "
            "seconds before timeouts.link is over",
        )
    ),
    Code.AGENT_ABANDONED: lambda c: (
        "it cannot be reached, and its tasks continue (timeouts.link: off): end them there"
        + _if(c.pid, f"; its agent said that it has the process id {c.pid}")
    ),
    Code.SSH_ENDED: lambda c: f"ssh: {c.text}" if c.text else f"ssh {_exit(c)}",
    Code.SLURM_NODE_FAILED: lambda c: (
        f"Slurm marked {c.text.partition('Node failure on ')[2] or 'a node of the job'} as failed"
    ),
    Code.ONE_MACHINE_TWICE: lambda c: (
        f"port {c.port} is wanted on {c.name} and on {c.host}: one machine"
        if c.port
        else f"it is the machine that is also listed as {c.name}: its cores and GPUs count twice"
    ),
    Code.SEVERAL: _first_within,
    Code.TENSORBOARD_NOT_STARTED: lambda c: f"could not be started: {_within(c) or _error(c)}",
    Code.TENSORBOARD_EXITED: lambda c: (
        f"ended by itself ({signal_name(c.signal) if c.signal else c.status}); see {c.path}"
    ),
    Code.TASK_EXITED_EARLY: lambda c: (
        f"{_subject(c)}exited 0 before "
        f"{'the chief' if c.tasks in ((), ('chief:0',)) else format_names(c.tasks)} had finished"
    ),
    Code.TASKS_LOST_WITH_HOST: lambda c: (
        f"{format_names(c.tasks)} {'was' if len(c.tasks) == 1 else 'were'} lost with "
        f"{format_host_names(c.hosts or (c.host,))}: {_inner(c)}"
    ),
    Code.RESOURCE_LIMIT: _resource_limit,
    Code.JOB_STOPPED: lambda c: f"stopped{by_cause(c.within[0]) if c.within else ' by unknown'}",
    Code.NO_ROOM: lambda c: (
        f"no host has room for {'one or more of ' if len(c.tasks) > 1 else ''}"
        f"{format_names(c.tasks)}"
    ),
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
    Code.START_TIMED_OUT: _start_timed_out,
    Code.STALLED: lambda c: (
        f"no progress within timeouts.stall, {c.seconds:g} s{_elsewhere(c)}"
        + _if(c.tasks and not c.name, f"; {_at_work(c)}")
    ),
    Code.TASKS_STOPPED: lambda c: (
        f"for {c.seconds:.0f} s, no task had printed anything new or reported progress, and "
        + (_at_work(c) if c.tasks else "they used the processor")
    ),
    Code.COLLECTIVES_MISMATCHED: lambda c: (
        "the collectives of the tasks do not match"
        + _quote(c._replace(text=_NUMBERED_TYPE.sub(_with_type_name, c.text)))
    ),
    Code.COLLECTIVE_TIMED_OUT: lambda c: (
        (
            f"{format_names(c.tasks)} came too late to a collective, or never: {c.expected} waited"
            if c.tasks
            else f"{_subject(c)}waited in a collective for the others"
        )
        + f" until the limit was over{_quote(c)}"
        + "".join(f"; {cause_text(each)}" for each in c.within)
    ),
    Code.DISK_EXHAUSTED: lambda c: (
        f"{format_names(c.tasks)} exited 0 although the disk was full: {c.text}"
        if c.tasks
        else f"{_subject(c)}found the disk full{_quote(c)}"
    ),
    Code.VALUES_NOT_FINITE: lambda c: (
        f"{format_names(c.tasks)} exited 0 with {c.text}"
        if c.tasks
        else f"{_subject(c)}got values that are not finite{_quote(c)}"
    ),
    Code.KILLED_FROM_OUTSIDE: lambda c: (
        _subject(c)
        + (_exit(c) if c.status is None else f"exited {c.status}, as after {signal_name(c.signal)}")
        + ", from outside"
    ),
    Code.PREEMPTED: lambda c: (
        "{subject}was preempted: it {exit}".format_map(_Fields(c))
        + _if(c.path, f", which its own script sends, too, at {c.path}")
    ),
    Code.EXITED_BY_ITSELF: lambda c: (
        f"{_subject(c)}exited {c.status} by itself"
        + _if(c.status == 124, ", as `timeout` does if the time is over")
    ),
    Code.LEFT_AT_WORK: lambda c: (
        f"{format_names(c.tasks)} exited 0 with {format_count(c.count, 'process')} still "
        f"running, which distrun ended: {c.text}"
    ),
    Code.EXCEPTION_HIDDEN: lambda c: (
        f"{format_names(c.tasks)} exited 0 "
        f"{_if(c.expected, f'at {c.expected}, after an error')}"
        f"{_if(not c.expected, 'although the log ends in an ')}"
        f"{_if(not c.expected, 'exception' if c.name else 'error')}: {c.text}{_place(c)}"
        f"{_if(c.path, f'; its exit code is hidden at {c.path}')}"
    ),
    Code.PREEMPTED_SILENTLY: lambda c: (
        f"{format_names(c.tasks)} "
        + ("were preempted: they" if len(c.tasks) > 1 else "was preempted: it")
        + f" exited 0 at {c.text}{_if(not c.name, f' of {c.expected}')} after a SIGTERM that "
        f"distrun did not send"
        f"{_if(c.name, f', and {c.name} reached {c.expected}')}"
    ),
    Code.LISTENS_ON_LOOPBACK: lambda c: (
        f"{_subject(c)}listens at {format_names(c.addresses)} only"
        + _if(c.name, f", and the others look for it at {c.name}")
    ),
    Code.WAS_AT: lambda c: f"{c.task} at {c.text}{_if(c.path, f' (from {c.path})')}",
    Code.SERVED_ELSEWHERE: lambda c: (
        f"{_subject(c)}served at {c.text or f'port {c.port}'} instead of {c.name}"
        f"{_if(c.tasks, f', with a port that {format_names(c.tasks)} has')}: "
        + (
            f"the program sets TF_CONFIG, at {c.path}"
            if c.path
            else "it runs the code of the chief"
            if c.expected
            else "its cluster does not match that of the others"
        )
    ),
}

ADVICE: dict[Code, Words] = {
    **{Code(code): text for code, text in _TO_DO.items()},
    Code.PORT_TAKEN: _advice_on_owner,
    Code.POD_DELETED: lambda c: (
        "`distrun resume` continues the job; with `kubernetes.volume_claim`, another pod does"
        if c.name == "of its supervisor"
        else _TO_DO[Code.POD_PREEMPTED.value]
    ),
    Code.RESOURCE_LIMIT: lambda c: _resource_limit(c, 1),
    Code.FILE_NOT_WRITTEN: lambda c: (
        f"make room there, send less of it (program.sync), or set XDG_STATE_HOME {_FOR_LOGIN} to "
        "another disk"
        if c.is_disk_full
        else f"rename it, leave it out with a .gitignore, or set XDG_STATE_HOME {_FOR_LOGIN} to a "
        "folder that can have it"
    ),
    Code.TENSORFLOW_MISSING: lambda c: _if(
        c.hosts,
        "install it there, or name an interpreter that has it with the host's `python`; if the "
        "program does not need it, launch with --no-preflight",
    ),
    Code.TF_KERAS_MISSING: lambda c: f"install it: {install_command(c.name, _tf_keras(c))}",
    Code.AGENT_NOT_STARTED: lambda c: _if(
        c.commands,
        f"`{_command(c)} python3 --version` must print a version; does a shell profile there exit?",
    ),
    Code.HOST_UNUSABLE: _advice_before_start,
    Code.HOSTS_UNUSABLE: lambda c: _advice_for_hosts(c.within),
    Code.POD_NOT_CREATED: lambda c: (
        _advice_on_kubectl(c) or "create what is missing (`kubectl get events`)"
    ),
    Code.POD_ENDED: lambda c: (
        "write less there, or raise the limit that the message names, in `kubernetes.pod`"
        if "exceed" in c.text
        else "to stop a job: distrun kill"
        if c.text.startswith("somebody")
        else "`kubernetes.pod` or the image may end it; with `restart`, another takes over"
    ),
    Code.KUBECTL_FAILED: _advice_on_kubectl,
    Code.KUBECTL_ENDED: _advice_on_kubectl,
    Code.ORDER_NOT_ANSWERED: lambda c: (
        "see whether it answers at once if you log in by hand, or into a pod by `kubectl exec`"
        + _if(not c.name, "; if it is only slow, raise timeouts.start")
    ),
    Code.HOST_NOT_PREPARED: _advice_before_start,
    Code.TASK_NOT_STARTED: lambda c: (
        "make room on the disk of distrun's folder, or set DISTRUN_HOME to another"
        if c.is_disk_full
        else _TO_DO[Code.PROGRAM_NOT_FOUND.value]
    ),
    Code.STALLED: lambda c: (
        _if(
            c.path,
            f"children that {c.path} made by fork, after TensorFlow had started its threads, may "
            'wait for ever: use multiprocessing.get_context("spawn"), or create them before '
            "TensorFlow is imported; ",
        )
        + _lone_call(c.expected)
        + "the logs end with where each thread of each Python task was; a longer first step or "
        "evaluation needs a longer timeouts.stall"
    ),
    Code.ARGUMENTS_REFUSED: lambda c: (
        "check the arguments after the script; options of `distrun run` go before it: "
        "distrun run -n 2 train.py --epochs 3"
        if c.path
        else "check `program.args`, the roles' own `args`, and everything after `--`"
    ),
    Code.MEMORY_EXHAUSTED: lambda c: _raise(
        c, "", "use a smaller batch, shuffle buffer or cache, or fewer tasks a host (`slots`)"
    ),
    Code.FILES_EXHAUSTED: lambda c: _raise(
        c, "raise the limit on open files (`ulimit -n`)", "let it close files that it does not need"
    ),
    Code.LIMIT_HIT: lambda c: _raise(c, "raise that limit where it runs", "use less of it"),
    Code.PROCESSES_EXHAUSTED: lambda c: _raise(
        c,
        "raise the limit on processes (`ulimit -u`, or pids.max of the cgroup)",
        "let the tasks use fewer threads (OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, worker processes)",
    ),
    Code.CHILD_KILLED: lambda c: (
        f"memory ran out{'' if c.within else ', perhaps (see dmesg)'}: use fewer worker processes, "
        "a smaller batch or cache"
        if c.signal == signal.SIGKILL
        else _FAULTS.get(
            c.signal,
            _if(c.signal, "a fault in native code of the child: ")
            + "see the lines that it printed last",
        )
    ),
    Code.KILLED_FOR_MEMORY: lambda c: _raise(
        c,
        "raise the memory limit of the cgroup or container",
        "use a smaller batch, shuffle buffer or cache, or fewer tasks a host (`slots`)",
    ),
    Code.KILLED_FROM_OUTSIDE: lambda c: (
        "somebody sent it that signal: a scheduler, a person, a script"
        + _if(
            c.signal == signal.SIGKILL,
            "; or it ran out of memory, and distrun may not read the kernel's record of that (see "
            "dmesg)",
        )
    ),
    Code.PREEMPTED: lambda c: (
        _if(
            c.path,
            "a script's `kill 0` ends the script itself: write `trap 'kill $(jobs -p)' EXIT`; if "
            "it waits for what it kills, write `exit 0` after its `wait`; or ",
        )
        + "somebody sent it SIGTERM, perhaps a scheduler that needs the machine; with `restart` in "
        "the spec, the restart is not counted if the task had lived for 60 s or reported a step "
        "through DISTRUN_NOTIFY"
    ),
    Code.CRASHED: lambda c: (
        "the program ends itself so: see in its last lines why"
        if _FATAL_OF_PYTHON.search(c.text)
        else _FAULTS.get(
            int(signal.SIGILL)
            if "was compiled to use" in c.text
            else c.signal or (c.status or 0) - 128,
            "a fault in native code: of a library, its build, or the driver; see its last lines",
        )
    ),
    Code.EXITED_BY_ITSELF: lambda c: (
        "if that is what main() returns: `sys.exit(main())`, and absl's `app.run(main)`, print it "
        "and exit 1, unless it is None or 0: let main() return nothing"
        if c.name == "sys.exit"
        else _if(c.name, f"set {c.name} (`env` of `program`) to see where; ")
        + "see what it printed last: {output}".format_map(_Fields(c))
    ),
    Code.EXITED_WHILE_NEEDED: lambda c: (
        f"{_lone_call(c.path)}every task must take part to the end: as many steps or batches for "
        "each worker, and servers that join()"
        + _if(
            c.name,
            f"; or, if each {c.name} trains by itself, as in TensorFlow 1, write "
            "`workers: independent`",
        )
    ),
    Code.CHILD_CRASHED: lambda c: cause_advice(c._replace(code=Code.CHILD_KILLED)) or "",
    Code.NEVER_LISTENED: lambda c: (
        f"create the strategy that the spec names{_if(c.name, f' (`tf.distribute.{c.name}`)')}, "
        "with the TF_CONFIG that distrun sets, before anything else that uses TensorFlow; if the "
        f"tasks need no contact, {_OWN_CONFIG}"
    ),
    Code.LISTENS_ON_LOOPBACK: lambda c: (
        "let its server listen on 0.0.0.0 (all addresses), or on DISTRUN_ADDRESS"
        + _if(
            "127.0.1.1" in "".join(c.addresses),
            "; /etc/hosts there gives 127.0.1.1 for the host's own name",
        )
    ),
    Code.COLLECTIVE_TIMED_OUT: lambda c: (
        f"{_lone_call(c.path)}let no task do alone what takes so long (input, evaluation, a save), "
        "or raise "
        + ("`timeout` of init_process_group" if "Watchdog" in c.text else _TF_COLLECTIVE_LIMIT)
        + "; every worker must take as many steps"
    ),
    Code.SERVED_ELSEWHERE: lambda c: (
        "only the chief may create ParameterServerStrategy; in workers and ps, run "
        "`tf.distribute.Server(...).join()` before it"
        if c.expected
        else f"{cause_advice(Cause(Code.WAITED_FOR_OTHERS))}; if the program's own TF_CONFIG is "
        f"meant, {_OWN_CONFIG}"
    ),
}
