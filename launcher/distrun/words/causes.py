"""Causes as sentences: what failed, and what to do about it.

No other module makes a sentence of a code. A text in the tables is formatted with the fields of
the cause and those of `_NAMED`; a function makes those that depend on more.
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
from distrun.spec.problems import printable
from distrun.spec.units import format_bytes
from distrun.tables import read_rows
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
    errno.ENOMEM: "end what uses the memory, or put fewer tasks on a host",
}
_SENTENCES = (
    *(Code.SLURM_CANCELLED, Code.SLURM_TIME_LIMIT, Code.SLURM_OUT_OF_MEMORY),
    *(Code.SLURM_PREEMPTED, Code.SLURM_NODE_FAILED),
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
_FATAL_OF_PYTHON = re.compile(r"^F.{0,60}\.py:\d+\] ")
"""Begins what absl's logging.fatal prints."""
_BY_TEXT = [row.partition(" => ")[::2] for row in read_rows(__spec__, "remedies.txt")]
"""What to do about an error, by what it says."""
_TOLD_BY_TEXT = (
    *(Code.EXCEPTION_RAISED, Code.MODULE_NOT_IMPORTED, Code.NAME_NOT_IN_MODULE),
    *(Code.GPU_UNUSABLE, Code.SCRIPT_UNREADABLE, Code.LIBRARY_NOT_LOADED, Code.CRASHED),
    Code.PERMISSION_REFUSED,
)
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
    by_text = _BY_TEXT if cause.code in _TOLD_BY_TEXT else ()
    own = next((advice for said, advice in by_text if re.search(said, cause.text)), None)
    own = own or _advice_on_limit(cause) or _words(ADVICE, cause)
    if own or cause.code is Code.PREFLIGHT_FAILED:  # each check has been shown with its advice
        return own
    return next(filter(None, map(cause_advice, cause.within)), None)


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
    return "".join(f"\n  {printable(each.host)}: {_within(each)}" for each in cause.within)


def _advice_within(cause: Cause, separator: str = "; ") -> str:
    """The advice on each cause, without repetition."""
    return separator.join(filter(None, dict.fromkeys(map(cause_advice, cause.within))))


def _inner_advice(cause: Cause) -> str | None:
    return cause_advice(cause.within[0]) if cause.within else None


def _advice_before_start(cause: Cause) -> str:
    lost = {Code.POD_DELETED, Code.POD_PREEMPTED}
    return "start it again" if {c.code for c in cause.within} & lost else _advice_within(cause)


_ON_REFUSALS = {
    "getting credentials": "log in to the cluster again: `kubectl get pods` shows what fails",
    "calling webhook": "ask the cluster's administrators: a webhook of it does not answer",
    "dial tcp|tls: |handshake|nable to connect|connection to the server|not answered": """see, by
        `kubectl cluster-info`, whether the cluster of its configuration answers""",
    r"cannot \w+ resource": "ask for that right: docs/kubernetes.md has a Role with all of them",
    "is being terminated": "set another `kubernetes.namespace`, or create it again once it is gone",
    "must specify": "set `kubernetes.cpus` and `kubernetes.memory`",
    "exceeded quota": "ask for less, or free some of what `kubectl describe quota` shows",
    "usage per (?:Container|Pod)": "ask for what `kubectl describe limitrange` allows",
    "PodSecurity|denied the request|is invalid|validating|strict decoding|be handled": """correct
        what it names in `kubernetes`, mostly in `kubernetes.pod`""",
    "nauthorized|must be logged in": """log in to the cluster again;
        `kubectl auth can-i create jobs` shows whether it holds""",
    "exit code 137": "set `kubernetes.memory`: the namespace's default may be too small",
    'context "': "correct `kubernetes.context`: `kubectl config get-contexts` lists them",
    "namespaces .*not found": "correct `kubernetes.namespace`, or have the namespace created",
}
"""What to do, by what kubectl or an event of Kubernetes says. The first one counts."""


def _advice_on_kubectl(cause: Cause) -> str:
    found = (advice for said, advice in _ON_REFUSALS.items() if re.search(said, cause.text))
    return one_line(next(found, ""))


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
    return (
        f"end the program that has it{_if(cause.pid, f' (kill {cause.pid})')}, or use another port"
    )


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
    """Which tasks were at another line than most, if that is clear."""
    return _if(cause.name, f"; unlike the others, {cause.name} was at {cause.text}")


def _raise(cause: Cause, usual: str, instead: str) -> str:
    """The advice to raise the limit that was hit, if it is known, or to do something else."""
    advice = _inner_advice(cause) or usual
    return f"{advice}, or {instead}" if advice else instead


def _unhidden(line: str) -> str:
    if line.endswith("(ignored)"):
        return "remove the `-` before that command of make, or make's option -i; "
    if _CODE_IGNORED.search(line):
        return f"let the shell script exit with the program's code at {line}; "
    option = "`set -eo pipefail`, which bash has," if "|" in line else "`set -e`"
    return f"write {option} at the top of the shell script; "


def _lone_call(call: str) -> str:
    return _if(call, f"{call} for some of the tasks only, and all must make that call; ")


def _with_type_name(match: re.Match[str]) -> str:
    """A collective operation or type that TensorFlow gives as a number, with its name."""
    names = _COLLECTIVES if match[1] == "type" else _DATA_TYPES
    name = names.get(int(match[2]))
    return f"{match[0]}{_if(name, f' ({name})')}"


def _folder_variable(cause: Cause) -> str:
    if cause.name.startswith("XDG"):
        return f"{cause.name} for its login"
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


def _advice_on_start(cause: Cause) -> str:
    if cause.is_disk_full:
        room = "make room on the disk of distrun's folder, or set DISTRUN_HOME to another"
        return _inner_advice(cause) or room
    return _inner_advice(cause) or _CHECK_PROGRAM


def _tf_keras(cause: Cause) -> str:
    version = re.match(r"\d+\.\d+", cause.version)
    return f'"tf_keras=={version[0]}.*"' if version else "tf_keras"


_NAMED: dict[str, Callable[[Cause], Any]] = {
    "addresses": lambda c: format_names(c.addresses),
    "advice_within": _advice_within,
    "at_host": _at_host,
    "because": _because,
    "command": _command,
    "copying": lambda c: (
        "`program.sync: script` has distrun send it" if c.name == "off" else "launch again"
    ),
    "end_shared": lambda c: _if(
        c.name and c.path,
        f"; end a shared connection that hangs with `ssh -O exit -o ControlPath={c.path} {c.name}`",
    ),
    "error": _error,
    "exit": _exit,
    "exit_status": _exit_status,
    "folder_variable": _folder_variable,
    "host_first": lambda c: _if(c.host, f"{c.host}: "),
    "hosts": lambda c: format_names(c.hosts),
    "inner": _inner,
    "inner_2": lambda c: _inner(c, 1),
    "job": lambda _: _job_in_advice.get() or "JOB",
    "logs": lambda _: f"distrun logs {_job_in_advice.get()}".rstrip(),
    "move_logs": _move_logs,
    "of_path": lambda c: _if(c.path, f" of {c.path}"),
    "place": _place,
    "port_on_host": _port,
    "quote": _quote,
    "said": lambda c: _if(c.text, f": {c.text}"),
    "shared": _shared_connection,
    "signal_name": lambda c: signal_name(c.signal),
    "ssh": _ssh,
    "subject": _subject,
    "tasks": lambda c: format_names(c.tasks),
    "tasks_on_hosts": lambda c: " and ".join(
        f"{task} on {host}" for task, host in zip(c.tasks, c.hosts, strict=False)
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
    "within": _within,
}
"""What texts can name besides the fields of a cause."""

_CHECK_HOST = """check that the host is up and reachable, and whether somebody ended distrun's agent
    there; a slow link needs a longer `timeouts.link`"""
_POD_LOST = """with `restart.max: 1`, the job continues in the pod that replaces it; such restarts
    do not count"""
_CHECK_PROGRAM = "check `program` in the spec; `distrun plan SPEC` shows each task's command"
_FREE_PORT = """end what holds the port (ss -ltnp shows it), or leave ports to distrun: give counts
    instead of addresses in `cluster`"""
_LIMIT_PORTS = """a server of TensorFlow lets whoever connects read and write your files: limit
    `ports.range` with a firewall, see docs/security.md"""
_NOT_THAT_HOST = """{tasks_on_hosts} would be at {addresses}, which on every other host is that host
    itself"""
_OTHER_ADDRESS = "perhaps that address does not lead there: `address:` of a host names another"
_OPEN_PORTS = f"""let the hosts reach each other's ports by TCP; `ports: {{{{range: 20000-21000}}}}`
    keeps them in a range that a firewall can allow; {_OTHER_ADDRESS}"""
_SAME_CLUSTER = """every task must see the same cluster and its own task entry: leave TF_CONFIG to
    distrun, do not set it in the script, and compare the tasks in `distrun plan SPEC`"""
_SHARE_PORT = """distrun holds port {port} for the task, with SO_REUSEPORT: a server other than
    TensorFlow's must set that option before it binds the port; or write
    `program.binds_port: true`"""
_WAS_STOPPED = """it was stopped by SIGSTOP or a debugger, its machine was asleep or overloaded, or
    the network to it is gone"""

TEXTS: dict[Code, Words] = {
    Code.PROCESS_NOT_MADE: "a process for it could not be created: {error}",
    Code.LOG_NOT_OPENED: "its log {path!r} cannot be opened: {error}",
    Code.WORKDIR_NOT_ENTERED: "its working folder {path!r} cannot be entered: {error}",
    Code.PROGRAM_NOT_FOUND: lambda c: f"there is no program {c.name!r}{_searched_folder(c)}",
    Code.INTERPRETER_NOT_FOUND: "{name!r} names an interpreter that is not there: {path}",
    Code.PROGRAM_NOT_EXECUTABLE: "{name!r} may not be executed: is it a file, and executable?",
    Code.PROGRAM_FORMAT_UNKNOWN: """{name!r} is not a program: its first line should be like
        #!/bin/sh""",
    Code.ARGUMENTS_TOO_LONG: """its arguments and environment are too large for Linux (128 KiB for
        one string)""",
    Code.PROGRAM_NOT_EXECUTED: "{name!r} cannot be executed: {error}",
    Code.AGENT_DEFECT: "the agent failed before executing it: {text}",
    Code.LOG_NOT_WRITTEN: "its log {path!r} cannot be written: {error}",
    Code.AGENT_TERMINATED: "its agent received SIGTERM",
    Code.GUARD_DIED: "the guard of its agent, the process that started the agent, was killed",
    Code.AGENT_DIR_NOT_CREATED: "there is no place for logs on it: {within}",
    Code.PATH_NOT_WRITABLE: "{path}: {error}",
    Code.PATH_CHANGEABLE: "other users can exchange {path!r}",
    Code.LOG_DIR_NOT_CREATED: "the folder {path!r} for logs cannot be created: {error}",
    Code.LOG_DISK_FULL: "the disk of its tasks' logs, {path!r}, is full",
    Code.LOG_DISK_READ_ONLY: "the disk of its tasks' logs, {path!r}, is read-only",
    Code.LOGS_NOT_LIMITED: "{host_first}logs.max_size cannot limit the logs in {path!r}: {error}",
    Code.AGENT_FAILED: lambda c: (
        f"distrun's agent{_if(c.host, f' on {c.host}')} failed, which is a defect in distrun: "
        f"{c.text}" + _if(c.path, f"; its traceback is in {c.path}")
    ),
    Code.LEASE_EXPIRED: """its agent received nothing from the launching side for {seconds:g} s
        (timeouts.link)""",
    Code.LINK_CLOSED: "the launching side closed its link",
    Code.SUPERVISOR_DIED: "its supervisor died",
    Code.PROGRESS_EXCESSIVE: "it reports more progress than distrun reads: the rest is ignored",
    Code.PROGRESS_FROM_STRANGER: lambda c: (
        f"progress that {f'process {c.pid} of user {c.count}' if c.pid else 'an unseen process'} "
        "sent is ignored: it is not a process of the task"
    ),
    Code.REQUEST_VERSION_DIFFERS: """the job's supervisor is of another version of distrun (protocol
        {total}; this command: {count})""",
    Code.PROTOCOL_DIFFERS: "the supervisor speaks protocol {count}, this agent {total}",
    Code.FRAME_TOO_LONG: "a frame of {count} bytes: noise on the link",
    Code.MESSAGE_TOO_LONG: "a message of {count} bytes is over the limit",
    Code.MESSAGE_INVALID: "not a message of this protocol: {text!r}",
    Code.MESSAGE_UNEXPECTED: "received a {name} where a {text} was expected",
    Code.REPORT_INVALID: "its agent sent a {name} with a value that it cannot have: {text}",
    Code.REPORT_UNASKED: lambda c: (
        f"its agent sent a {c.name}{_if(c.task, f' of {c.task}')} that it was not asked for"
    ),
    Code.REPORT_OF_FOREIGN_TASK: """its agent sent a {name} of {task}, which is not a task of this
        host""",
    Code.FRAMES_DAMAGED: "{count} messages of its agent in a row were damaged",
    Code.ORDERS_NOT_READ: "its agent does not read what it is sent",
    Code.STOP_NOT_EXECUTED: """its agent did not end its tasks within {seconds:g} s of the order;
        processes may be left there""",
    Code.PROCESSES_NOT_ENDED: """processes that it started do not die, not even by SIGKILL:
        {text}{because}""",
    Code.ORDER_NOT_ANSWERED: _order_not_answered,
    Code.PORT_OF_STRANGER: "another user, number {count}, listens on port {port} of {task}",
    Code.PORT_TAKEN: lambda c: f"{_port(c)} is taken{_if(_owner(c), f': {_owner(c)} has it')}",
    Code.PORT_HELD_BY_JOB: "{port_on_host} is taken: another distrun job holds it",
    Code.PORT_NAME_TAKEN: """{port_on_host} cannot be held: another user, number {count}, has taken
        the socket name @{name}, with which distrun marks ports of your jobs""",
    Code.PORT_PRIVILEGED: "{port_on_host} needs more rights, as all ports below 1024 do",
    Code.PORT_NOT_HELD: "{port_on_host} cannot be held: {error}",
    Code.FREE_PORTS_NOT_HELD: lambda c: (
        _if(c.host, f"on {c.host} ")
        + f"{'no port can' if c.total == 1 else f'{c.total} ports cannot'} be held: {_error(c)}"
    ),
    Code.TOO_FEW_FREE_PORTS: lambda c: (
        f"{_if(c.host, f'on {c.host} ')}only {c.count} of {c.total} ports "
        + ("from {0} to {2}".format(*c.text.partition("-")) if c.text else "on this host")
        + f" are free{_because(c)}"
    ),
    Code.FILE_NOT_WRITTEN: "{path}: {error}",
    Code.FILE_NOT_READ: "{path!r} cannot be sent: {error}",
    Code.FILE_CHANGED: """{path!r} changed while it was being sent; launch again, or leave it out
        with a .gitignore""",
    Code.FILE_TRUNCATED: "{path!r} became shorter while it was being sent",
    Code.DISK_UNRELIABLE: "a disk there does not keep what is written to it",
    Code.DIGEST_INVALID: "{text!r} is not a SHA-256",
    Code.PATH_OUTSIDE_TREE: "{path!r} is not a path inside the program's files",
    Code.LINK_OUTSIDE_TREE: "the link {path!r} leads out of the program's files, to {name!r}",
    Code.PROBE_NOT_STARTED: "no process could be created: {error}",
    Code.PROBE_TIMED_OUT: "it took too long",
    Code.PROBE_DIED: "its process died",
    Code.PORT_NOT_LISTENING: "port {port} cannot be listened on: {error}",
    Code.CONNECTION_REFUSED: "refused: a firewall rejects it, or it is not that host's address",
    Code.CONNECTION_TIMED_OUT: """no answer within {seconds:g} s: a firewall drops it, or nothing
        has that address""",
    Code.NO_ROUTE: """there is no way to it ({error}): a firewall rejects it, or the networks are
        not joined""",
    Code.CONNECTION_FAILED: "{error}",
    Code.NAME_NOT_RESOLVED: lambda c: (
        f"the name cannot be looked up there ({c.text or f'no answer within {c.seconds:g} s'})"
    ),
    Code.GREETING_MISSING: lambda c: (
        "the connection is accepted, but nothing of this job answers"
        + _if(c.errno, f" ({_error(c)})")
    ),
    Code.GREETING_DIFFERENT: "another program answers there",
    Code.SCRIPT_NOT_READ: "{path} cannot be read: {error}",
    Code.INTERPRETER_FAILED: lambda c: (
        _error(c) or f"it exited with {c.status}{_if(c.text, f'; {c.text}')}"
    ),
    Code.HOST_REACHED: lambda c: (
        f"{c.text} {'core' if c.text == '1' else 'cores'}"
        f"{_if(c.count, ', ' + format_count(c.count, 'GPU'))}, Python {c.version} for the agent"
    ),
    Code.PORTS_HELD: lambda c: f"{format_count(c.count, 'port')} held; no other to reach",
    Code.PORTS_REACHED: lambda c: f"reaches {format_count(c.count, 'port')} of the tasks",
    Code.PORTS_UNREACHABLE: "{hosts} cannot reach {host} at {addresses}: {inner}",
    Code.PORTS_NOT_DIALLED: "it could not try to reach the others: {inner}",
    Code.BANDWIDTH_MEASURED: _bandwidth,
    Code.BANDWIDTH_LOW: lambda c: f"{_bandwidth(c)}; the median of all hosts is {c.text}",
    Code.BANDWIDTH_UNKNOWN: "not measured: no other host has both sent to it and received from it",
    Code.CLOCK_AGREES: "within a second of this machine's",
    Code.CLOCK_DIFFERS: lambda c: (
        f"its clock is {abs(c.seconds):.1f} s {'ahead of' if c.seconds > 0 else 'behind'} this "
        "machine's"
    ),
    Code.GPUS_UNKNOWN: lambda c: (
        ("nvidia-smi did not answer" if c.status is None else f"nvidia-smi exited with {c.status}")
        + f"{_if(c.text, f': {c.text}')}; its GPUs are not known, and tasks get none"
    ),
    Code.INSPECTION_FAILED: "programs and disks could not be inspected: {inner}",
    Code.DISK_HAS_ROOM: lambda c: (
        f"over {format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}"
    ),
    Code.DISK_NEARLY_FULL: lambda c: (
        f"{format_bytes(c.count)} free {_DISK_USES.get(c.name, c.name)}, {c.path}"
    ),
    Code.WORKDIR_ENTERED: "{path}",
    Code.WORKDIR_UNUSABLE: "{inner}",
    Code.PROGRAM_FOUND: "{name}",
    Code.PROGRAM_UNUSABLE: "{inner}",
    Code.INTERPRETER_UNUSABLE: "{inner}",
    Code.SCRIPT_SAME: "{path}",
    Code.SCRIPT_UNUSABLE: "{inner}",
    Code.SCRIPT_DIFFERS: "{path} is not the same as on {hosts}",
    Code.VERSION_FOUND: lambda c: (
        "installed, its version unknown" if c.version == "unknown" else c.version
    ),
    Code.PYTHON_NOT_RUNNING: "{name} does not run: {inner}",
    Code.PYTHON_SLOW: "{name} did not report its version in time",
    Code.PYTHON_DIFFERS: "{name} has Python {version}; that of {hosts} has {expected}",
    Code.TENSORFLOW_DIFFERS: "{name} has TensorFlow {version}; that of {hosts} has {expected}",
    Code.TENSORFLOW_MISSING: lambda c: (
        f"{c.name} there has no TensorFlow; that of {format_names(c.hosts)} has"
        if c.hosts
        else f"{c.name} has none, as on every host"
    ),
    Code.TF_KERAS_FOUND: "{name} has tf_keras",
    Code.TF_KERAS_MISSING: "program.keras is 2, but {name} has no tf_keras",
    Code.MODULES_FOUND: "{name} has the modules that the program imports",
    Code.MODULES_MISSING: "{name} has no {text}: the program imports {them}",
    Code.FOLDER_SHARED: "{path}",
    Code.FOLDER_NOT_SHARED: "{path} on {host} is not the folder that {name} has",
    Code.FOLDER_NOT_USABLE: "a file in {path} cannot be written and read: {error}{within}",
    Code.SERVERS_OPEN_TO_USERS: lambda c: (
        f"other users of the host can connect to TensorFlow's servers: {c.text}"
        + _if(c.count > 3, f" and {c.count - 3} more")
    ),
    Code.SERVERS_OPEN_TO_NETWORK: """machines outside the cluster can reach TensorFlow's servers,
        unless a firewall stops them: they also listen on {addresses}""",
    Code.PREFLIGHT_FAILED: lambda c: (
        f"the preflight failed: {_at_host(c)}{_more_checks(c.count - 1)}"
    ),
    Code.TOO_FEW_SLOTS: "{count} tasks do not fit on the hosts' {total} slots",
    Code.TOO_FEW_GPUS: "the tasks on {host} ask for {count} GPUs, and it has {total}{because}",
    Code.ADDRESS_SHARED: "{tasks_on_hosts} would both be at {addresses}",
    Code.LOOPBACK_IN_CLUSTER: _NOT_THAT_HOST,
    Code.LOOPBACK_OF_HOST: _NOT_THAT_HOST,
    Code.TF_CONFIG_TOO_LONG: """{name} would take {count:,} bytes; Linux passes no variable over 128
        KiB""",
    Code.SSH_NOT_STARTED: "ssh cannot be started: {error}",
    Code.SSH_OPTION_REFUSED: "ssh refuses an option that it is given{ssh}",
    Code.SSH_CONFIGURATION_REFUSED: "ssh refuses its configuration{ssh}",
    Code.HOST_KEY_CHANGED: "its host key is not the one in known_hosts{ssh}",
    Code.HOST_KEY_UNKNOWN: "its host key is not known{ssh}",
    Code.LOGIN_REFUSED: "the login is refused{ssh}",
    Code.SSH_NAME_NOT_RESOLVED: "its name cannot be resolved{ssh}",
    Code.SSH_PORT_CLOSED: "nothing listens at its ssh port{ssh}",
    Code.SSH_NO_ROUTE: "there is no way to it{ssh}",
    Code.NO_COMMON_ALGORITHM: "it and the ssh of this machine have no algorithm in common{ssh}",
    Code.BANNER_MISSING: """its sshd, or the jump host or proxy on the way to it, does not
        answer{ssh}{shared}""",
    Code.SSH_TIMED_OUT: "it does not answer{ssh}",
    Code.CLOSED_BY_SSHD: "its sshd closes the connection{ssh}",
    Code.CLOSED_BY_PROXY: "the proxy on the way to it, or its sshd, closes the connection{ssh}",
    Code.JUMP_HOST_FAILED: lambda c: (
        f"its jump host{_if(c.name, f' {c.name}')}: {_within(c)}{_ssh(c)}"
    ),
    Code.SSH_FAILED: "ssh failed{ssh}",
    Code.LOGIN_TIMED_OUT: lambda c: (
        f"its login did not finish within {c.seconds:g} s{_if(c.text, f'; it printed: {c.text}')}"
        + _shared_connection(c)
    ),
    Code.PYTHON_MISSING: "there is no python3 on it{ssh}",
    Code.PYTHON_TOO_OLD: lambda c: (
        f"{f'python3 is {c.name},' if c.name else 'its python3 is'} too old for distrun's agent"
    ),
    Code.PYTHON_NOT_EXECUTABLE: "its python3 cannot be executed{ssh}",
    Code.ACCOUNT_RUNS_NO_COMMANDS: "its account runs no commands{ssh}",
    Code.INPUT_TAKEN_BY_LOGIN: "its Python does not receive what distrun sends{ssh}",
    Code.REMOTE_DISK_FULL: "a disk there is full{ssh}",
    Code.AGENT_NOT_STARTED: lambda c: (
        f"its agent cannot be started: {_error(c)}"
        if c.errno
        else f"the login {_exit(c)} before the agent could start"
        f"{_if(c.text, f'; it printed last: {c.text}')}"
    ),
    Code.AGENT_NOT_CONFIGURED: "{within}",
    Code.HOST_UNUSABLE: "{host} cannot be used: {within}",
    Code.HOSTS_UNUSABLE: lambda c: (
        f"{len(c.within)} of {c.count} hosts cannot be used{_lines_within(c)}"
    ),
    Code.SUPERVISOR_FAILED: """distrun's supervisor failed, which is a defect in distrun: {text};
        its traceback is in {path}""",
    Code.AGENT_EXITED: lambda c: f"its agent {_exit(c)}{_if(c.text, f' ({c.text})')}",
    Code.AGENT_SHUT_DOWN: "its agent ended",
    Code.AGENT_NOT_NEEDED: "it is no longer needed",
    Code.AGENT_GONE: lambda c: (
        f"its agent is gone{_because(c)}"
        + _if(
            all(each.code is not Code.POD_ENDED for each in c.within),
            ": the host was restarted, or could not be reached for longer than timeouts.link",
        )
    ),
    Code.AGENT_ABANDONED: lambda c: (
        "it cannot be reached, and its tasks continue (timeouts.link: off): end them there"
        + _if(c.pid, f"; its agent said that it has the process id {c.pid}")
    ),
    Code.SSH_ENDED: lambda c: f"ssh: {c.text}" if c.text else f"ssh {_exit(c)}",
    Code.NOT_ANSWERED: "no answer",
    Code.SSH_NOT_ENDED: "ssh does not end",
    Code.HEARTBEAT_MISSING: "no sign of life",
    Code.HOST_SILENT_TOO_LONG: """no sign of life for {seconds:g} s (timeouts.link){because}; it is
        not known whether its tasks have ended""",
    Code.SLURM_TIME_LIMIT: "Slurm ended it at the time limit of job {name}",
    Code.SLURM_OUT_OF_MEMORY: """Slurm ended it: it needed more memory than job {name} has there
        (OUT_OF_MEMORY)""",
    Code.SLURM_PREEMPTED: """Slurm preempted job {name} for another one, or somebody requeued it
        (scontrol requeue)""",
    Code.SLURM_NODE_FAILED: lambda c: (
        f"Slurm marked {c.text.partition('Node failure on ')[2] or 'a node of the job'} as failed"
    ),
    Code.SLURM_CANCELLED: "it was cancelled in Slurm (scancel): job {name} or one of its steps",
    Code.SLURM_ALLOCATION_ENDS: "Slurm's signal before the end of its allocation",
    Code.SLURM_JOB_ENDED: """Slurm's job {name} has ended ({text}) before its record has an end;
        what it printed: {path}""",
    Code.SRUN_NOT_STARTED: "srun cannot be started: {error}",
    Code.SRUN_FAILED: "srun {exit}{said}",
    Code.SRUN_TIMED_OUT: "srun has not started a step there in time{said}",
    Code.POD_NOT_CREATED: "Kubernetes creates no pod: {text}",
    Code.POD_UNSCHEDULABLE: "pod {name} is unschedulable: {text}",
    Code.POD_QUEUED: "the pods are queued: Kueue has not admitted them",
    Code.POD_PENDING: "pod {name} does not run yet{said}",
    Code.POD_IMAGE_MISSING: "the image {path} cannot be used: {text}",
    Code.POD_NOT_STARTED: "pod {name} does not start: {text}",
    Code.POD_PREEMPTED: "Kubernetes took pod {name} from its node: {text}",
    Code.POD_DELETED: "pod {name} was deleted",
    Code.POD_OUT_OF_MEMORY: "pod {name} needed more memory than it may have (OOMKilled)",
    Code.POD_ENDED: "pod {name} has ended{said}",
    Code.KUBECTL_NOT_STARTED: "kubectl cannot be started: {error}",
    Code.KUBECTL_FAILED: "kubectl {exit}{said}",
    Code.KUBECTL_ENDED: "the connection of kubectl ended{said}",
    Code.LOG_PART_MISSING: "a part of {path} is missing",
    Code.LOG_REMOVED: "{path} was removed there while its task ran; its later output is lost",
    Code.LOGS_TOO_SLOW: "their host sent them too slowly, or stopped sending them",
    Code.LOG_COPY_NOT_WRITTEN: "the copy of {path} cannot be written: {error}",
    Code.RESULTS_NOT_FETCHED: "results are not all here: {host_first}{text}{within}",
    Code.LOGS_LEFT_ON_HOST: "{within}; all of them are in {path} on {host}",
    Code.FILES_REFUSED: "{host} cannot receive the program's files: {within}",
    Code.FILES_REFUSED_BY_HOSTS: lambda c: (
        f"{len(c.within)} hosts cannot receive the program's files{_lines_within(c)}"
    ),
    Code.ONE_MACHINE_TWICE: lambda c: (
        f"port {c.port} is wanted on {c.name} and on {c.host}: one machine"
        if c.port
        else f"it is the machine that is also listed as {c.name}: its cores and GPUs count twice"
    ),
    Code.PORTS_REFUSED: "{within}",
    Code.HOST_NOT_PREPARED: "{host} cannot be prepared: {within}",
    Code.NO_HOST_ANSWERED: "no host answered",
    Code.SEVERAL: _first_within,
    Code.PLAN_NOT_WRITTEN: "the plan {path} cannot be written: {error}",
    Code.RECORD_NOT_WRITTEN: "the job's record {path} cannot be written: {error}",
    Code.PROC_MISSING: "/proc is not mounted",
    Code.JOB_FOLDER_NOT_CREATED: "the job's folder {path} cannot be created: {error}",
    Code.TENSORBOARD_WITHOUT_HOST: "is not started: no task runs on this machine",
    Code.TENSORBOARD_NOT_STARTED: lambda c: f"could not be started: {_within(c) or _error(c)}",
    Code.TENSORBOARD_SILENT: "has not answered for {seconds:g} s; see {path}",
    Code.TENSORBOARD_EXITED: lambda c: (
        f"ended by itself ({signal_name(c.signal) if c.signal else c.status}); see {c.path}"
    ),
    Code.JOB_RESUMED: "`distrun resume`",
    Code.FORMER_HOST_UNREACHABLE: """{host} cannot be reached, so tasks of earlier attempts may
        still run there (timeouts.link: off){because}""",
    Code.FORMER_TASKS_ALIVE: "processes of earlier attempts do not end on {host}{said}",
    Code.FORMER_HOST_ASSUMED_DEAD: "`--assume-dead` says so; it was not verified",
    Code.FORMER_LEASE_OVER: """it cannot be reached, and its tasks have ended by themselves: their
        lease of {seconds:g} s (timeouts.link) is over{because}""",
    Code.STOPPED_BY_COMMAND: "{name}",
    Code.LAUNCH_SIGNALLED: "{signal_name}",
    Code.OUTPUT_READER_GONE: "the exit of the program that read its output (broken pipe)",
    Code.SUPERVISOR_SIGNALLED: "{signal_name} to its supervisor",
    Code.LAUNCH_COMMAND_DIED: "the death of its launch command",
    Code.TASK_EXITED: "{subject}exited {status}",
    Code.TASK_KILLED: "{subject}was killed by {signal_name}",
    Code.TASK_EXITED_EARLY: lambda c: (
        f"{_subject(c)}exited 0 before "
        f"{'the chief' if c.tasks in ((), ('chief:0',)) else format_names(c.tasks)} had finished"
    ),
    Code.TASK_NOT_STARTED: "{subject}could not be started: {inner}",
    Code.TASKS_LOST_WITH_HOST: lambda c: (
        f"{format_names(c.tasks)} {'was' if len(c.tasks) == 1 else 'were'} lost with "
        f"{format_host_names(c.hosts or (c.host,))}: {_inner(c)}"
    ),
    Code.LOST_WITH_HOST: "lost with its host: {inner}",
    Code.OOM_KILL_LOGGED: "kernel: {text}",
    Code.RESOURCE_LIMIT: _resource_limit,
    Code.OOM_KILL_COUNTED: "{path}: oom_kill rose from {count} to {total}",
    Code.EXITED_AS_SIGNALLED: "exited {status}, as after {signal_name}",
    Code.JOB_SUCCEEDED: "it succeeded",
    Code.JOB_STOPPED: lambda c: f"stopped{by_cause(c.within[0]) if c.within else ' by unknown'}",
    Code.RESTARTS_USED_UP: lambda c: f"{_inner(c)}, after {format_count(c.count, 'restart')}",
    Code.NOT_RESTARTED: "{inner}; not restarted: {inner_2}",
    Code.STATUS_EXCLUDED: "{name} has {exit_status}",
    Code.STATUS_NOT_INCLUDED: "{exit_status} is not in {name}, which is {text}",
    Code.RESTART_MAX_REACHED: lambda c: (
        f"{c.name} allows {format_count(c.count, 'restart') if c.count else 'no restart'}"
    ),
    Code.RESTART_NOT_APPLICABLE: "restarts follow exits of tasks and stalls only",
    Code.FAILURE_RECURS: lambda c: (
        f"the same failure at the same place {format_count(c.count, 'time')} in a row, without "
        "coming further"
    ),
    Code.LEADER_FINISHED: "{task} has finished, and the others cannot start again without it",
    Code.NO_ROOM: lambda c: (
        f"no host has room for {'one or more of ' if len(c.tasks) > 1 else ''}"
        f"{format_names(c.tasks)}"
    ),
    Code.HOST_FAILS_TASKS: "tasks failed {count} times in a row on {host}, and not on other hosts",
    Code.HOST_LOST: "{host} was lost: {inner}",
    Code.HOST_FAILED: "{host} cannot continue: {inner}",
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
    Code.RUN_TIMED_OUT: "it ran longer than timeouts.run, {seconds:g} s",
    Code.STALLED: lambda c: (
        f"no progress within timeouts.stall, {c.seconds:g} s{_elsewhere(c)}"
        + _if(c.tasks and not c.name, f"; {_at_work(c)}")
    ),
    Code.TASKS_QUIET: lambda c: (
        f"for {c.seconds:.0f} s, no task had printed, reported progress or used the processor"
        f"{_elsewhere(c)}"
    ),
    Code.TASKS_STOPPED: lambda c: (
        f"for {c.seconds:.0f} s, no task had printed or reported progress, and "
        + (_at_work(c) if c.tasks else "they used the processor")
    ),
    Code.COLLECTIVES_LATE: "{subject}created its strategy after TensorFlow was in use{quote}",
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
    Code.COLLECTIVE_LIMIT: "the limit is {seconds:g} s, timeout_seconds at {path}",
    Code.GROUP_SIZES_DIFFER: "the tasks do not agree on how many they are{quote}",
    Code.KERAS_3_USED: "{subject}used Keras 3 with a strategy that needs Keras 2{quote}",
    Code.KERAS_2_CODE: "{subject}has code for Keras 2, but runs with Keras 3{quote}",
    Code.TENSORFLOW_1_CODE: "{subject}has code for TensorFlow 1{quote}",
    Code.CLUSTER_SPEC_INCOMPLETE: """{subject}needs a role or task that its script's cluster does
        not have{quote}""",
    Code.TF_CONFIG_MISMATCH: """{subject}has a TF_CONFIG that does not match that of the
        others{quote}""",
    Code.TF_CONFIG_REFUSED: "{subject}has a TF_CONFIG that TensorFlow does not accept{quote}",
    Code.MODULE_NOT_RUNNABLE: "{subject}has no program to run{quote}",
    Code.MODULE_NOT_IMPORTED: "{subject}could not import a module{quote}",
    Code.NAME_NOT_IN_MODULE: "{subject}uses a name that a module does not have{quote}",
    Code.MAIN_NOT_GUARDED: "{subject}starts processes that run the whole script again{quote}",
    Code.INPUT_EMPTY: "{subject}asked for input, but a task's standard input is empty{quote}",
    Code.LIBRARY_NOT_LOADED: "{subject}could not load a library{quote}",
    Code.GPU_UNUSABLE: "{subject}could not use its GPU{quote}",
    Code.SERVER_FAILED: "{subject}did not get what it needs from a server{quote}",
    Code.LOGIN_MISSING: "{subject}has no login for a service{quote}",
    Code.FILES_UNREACHED: "{subject}was refused by a file system{quote}",
    Code.FOLDER_CONTESTED: "{subject}has a folder that another task or run changes, too{quote}",
    Code.SCRIPT_UNREADABLE: "{subject}ran a script that its shell cannot read{quote}",
    Code.SCRIPT_NOT_FOUND: "{subject}has no program to run{quote}",
    Code.ARGUMENTS_REFUSED: "{subject}did not accept its arguments{quote}",
    Code.PERMISSION_REFUSED: "{subject}was refused permission{quote}",
    Code.GPU_MEMORY_EXHAUSTED: "{subject}ran out of GPU memory{quote}",
    Code.MEMORY_EXHAUSTED: "{subject}ran out of memory{quote}",
    Code.DISK_EXHAUSTED: lambda c: (
        f"{format_names(c.tasks)} exited 0 although the disk was full: {c.text}"
        if c.tasks
        else f"{_subject(c)}found the disk full{_quote(c)}"
    ),
    Code.FILES_EXHAUSTED: "{subject}had too many files open{quote}",
    Code.NAME_REPLACED: "{subject}uses a name that TensorFlow has no more{quote}",
    Code.FILE_LOCKED: "{subject}could not lock a file, which another process has open{quote}",
    Code.FILE_DAMAGED: """{subject}could not read a file{of_path}, which is incomplete or of another
        format{quote}""",
    Code.SHELL_NOT_SET_UP: "{subject}ran a command that only an interactive shell has{quote}",
    Code.CONTAINER_NOT_STARTED: "{subject}could not start its container{quote}",
    Code.PROCESSES_EXHAUSTED: "{subject}could create no further process or thread{quote}",
    Code.THREADS_FORBIDDEN: "{subject}may not create threads{quote}",
    Code.LIMIT_HIT: "{subject}hit a limit of its host{quote}",
    Code.PORT_NOT_BOUND: "{subject}could not bind its port{quote}",
    Code.ADDRESS_NOT_OWN: "{subject}could not use an address{quote}",
    Code.PORT_IN_USE: "{subject}found a port taken{quote}",
    Code.OWN_PORT_IN_USE: "{subject}found a port taken{quote}",
    Code.SOME_PORT_IN_USE: "{subject}found a port taken{quote}",
    Code.DATA_EXHAUSTED: lambda c: f"{_exited_0(c)}ran out of data{_quote(c)}",
    Code.DATA_MISSING: lambda c: f"{_exited_0(c)}found no data{_quote(c)}",
    Code.USAGE_SHOWN: "{tasks} exited 0 without a step, after it had only printed: {text}",
    Code.VALUES_NOT_FINITE: lambda c: (
        f"{format_names(c.tasks)} exited 0 with {c.text}"
        if c.tasks
        else f"{_subject(c)}got values that are not finite{_quote(c)}"
    ),
    Code.PROXY_ANSWERED: "{subject}reached its peers only through a proxy{quote}",
    Code.PEERS_LOST: "{subject}lost its peers{quote}",
    Code.EXCEPTION_RAISED: "{subject}failed with {text}{place}",
    Code.CHECKPOINT_NOT_FOUND: """{subject}failed with {text}{place}: {path} is not on
        {host}{because}""",
    Code.FILE_NOT_SENT: """{subject}failed with {text}{place}: {path} exists on this machine and is
        not sent to the hosts""",
    Code.FILE_ELSEWHERE: """{subject}failed with {text}{place}: it is looked for in {expected}, the
        tasks' working folder, but it is {path}""",
    Code.INTERRUPTED: "{subject}was interrupted by SIGINT{quote}",
    Code.CHILD_KILLED: lambda c: (
        f"{_subject(c)}lost a child process: "
        f"{f'process {c.pid}' if c.pid else 'it'} was killed by {signal_name(c.signal)}"
        + _if(c.within, f": {_within(c)}")
    ),
    Code.KILLED_FOR_MEMORY: """{subject}ran out of memory: the kernel's OOM killer ended it on
        {host}{because}""",
    Code.KILLED_FROM_OUTSIDE: lambda c: (
        _subject(c)
        + (_exit(c) if c.status is None else f"exited {c.status}, as after {signal_name(c.signal)}")
        + ", from outside"
    ),
    Code.PREEMPTED: lambda c: (
        "{subject}was preempted: it {exit}".format_map(_Fields(c))
        + _if(c.path, f", which its own script sends, too, at {c.path}")
    ),
    Code.CRASHED: "{subject}crashed: it {exit}{quote}",
    Code.SHELL_FAILED: "{subject}exited {status}, as a shell does if it cannot run a program",
    Code.EXITED_BY_ITSELF: lambda c: (
        f"{_subject(c)}exited {c.status} by itself"
        + _if(c.status == 124, ", as `timeout` does if the time is over")
    ),
    Code.EXITED_AFTER_EXCEPTION: """{subject}exited {status} by itself, after it had printed
        {text}{place}""",
    Code.EXITED_WHILE_NEEDED: "{subject}exited 0 while the others still needed it",
    Code.SUCCESS_QUALIFIED: "it succeeded only in part: {within}",
    Code.LEFT_AT_WORK: lambda c: (
        f"{format_names(c.tasks)} exited 0 with {format_count(c.count, 'process')} still "
        f"running, which distrun ended: {c.text}"
    ),
    Code.CHILD_CRASHED: """{tasks} exited 0 although {signal_name} killed one of its
        processes""",
    Code.EXCEPTION_HIDDEN: lambda c: (
        f"{format_names(c.tasks)} exited 0 "
        f"{_if(c.expected, f'at {c.expected}, after an error')}"
        f"{_if(not c.expected, 'although the log ends in an ')}"
        f"{_if(not c.expected, 'exception' if c.name else 'error')}: {c.text}{_place(c)}"
        f"{_if(c.path, f'; its exit code is hidden at {c.path}')}"
    ),
    Code.TIMEOUT_HIDDEN: """{tasks} exited 0 after the {seconds:g} s that `timeout` gives the
        program; its exit code is hidden at {path}""",
    Code.COMMAND_FAILED: """{tasks} exited 0 although a command had failed: {text}{place}; its exit
        code is hidden at {path}""",
    Code.EXCEPTION_ASIDE: """{tasks} exited 0 although an exception ended a thread, a child, or
        a function called at the exit: {text}{place}""",
    Code.LEFT_BEHIND: """{tasks} exited 0 at {text}, long before {name}, which reached
        {expected}""",
    Code.PREEMPTED_SILENTLY: lambda c: (
        f"{format_names(c.tasks)} "
        + ("were preempted: they" if len(c.tasks) > 1 else "was preempted: it")
        + f" exited 0 at {c.text}{_if(not c.name, f' of {c.expected}')} after a SIGTERM that "
        f"distrun did not send"
        f"{_if(c.name, f', and {c.name} reached {c.expected}')}"
    ),
    Code.NEVER_LISTENED: lambda c: (
        f"{format_names(c.tasks)} never listened on a port: "
        f"{'each' if len(c.tasks) > 1 else 'it'} ran by itself, without the others"
    ),
    Code.TRAINED_ALONE: lambda c: (
        f"{format_names(c.tasks)} {'were' if len(c.tasks) > 1 else 'was'} never connected: "
        f"{'each' if len(c.tasks) > 1 else 'it'} trained alone"
    ),
    Code.LISTENS_ON_LOOPBACK: lambda c: (
        f"{_subject(c)}listens at {format_names(c.addresses)} only"
        + _if(c.name, f", and the others look for it at {c.name}")
    ),
    Code.STARTS_UNEVEN: """the tasks began at different steps after the restart, and trained
        different weights: {within}""",
    Code.WAS_AT: lambda c: f"{c.task} at {c.text}{_if(c.path, f' (from {c.path})')}",
    Code.SUSPENDED: "{subject}did not run: it was suspended{quote}",
    Code.NOT_ANSWERING: "{subject}no longer answered{quote}",
    Code.SERVED_ELSEWHERE: lambda c: (
        f"{_subject(c)}served at {c.text or f'port {c.port}'} instead of {c.name}"
        f"{_if(c.tasks, f', with a port that {format_names(c.tasks)} has')}: "
        + (
            f"the program sets TF_CONFIG, at {c.path}"
            if c.path
            else "its TF_CONFIG does not match that of the others"
        )
    ),
    Code.LISTENING: "it listens on port {port}",
    Code.WAITED_FOR_OTHERS: """{subject}waited for {text} tasks to connect, but the job has {count}:
        its TF_CONFIG does not match that of the others""",
    Code.RECORD_REMOVED: """{subject}could not be started: the folder of its log was removed while
        the job ran: {inner}""",
    Code.JOB_DID_NOT_START: "the job did not start within timeouts.start, {seconds:g} s",
    Code.JOB_DID_NOT_END: "the job did not end within timeouts.run, {seconds:g} s",
    Code.JOB_DISK_FULL: "{at_host}",
    Code.NO_OUTPUT: "nothing, except TensorFlow's log",
    Code.VERDICT_MISSING: "{inner}",
    Code.UNCODED: "{text}",
}

_EMPTY_BATCH = (
    "a shape that begins with 0 is an empty batch: the input of one task ended before that of the "
    "others (use `repeat()` and a number of steps); "
)
_WHERE_TASKS_WERE = (
    "the logs end with where each thread of each Python task was; `timeouts.stall` ends or "
    "restarts such a job by itself"
)
ADVICE: dict[Code, Words] = {
    Code.WORKDIR_NOT_ENTERED: """check whether `program.workdir` exists on its host, or was removed
        while the job ran""",
    Code.PROGRAM_NOT_FOUND: _CHECK_PROGRAM,
    Code.AGENT_DIR_NOT_CREATED: "{advice_within}",
    Code.PATH_CHANGEABLE: "run `chmod go-w` on it, or set XDG_STATE_HOME to a folder of your own",
    Code.LOG_DISK_READ_ONLY: """the kernel makes a disk read-only after errors: see `dmesg` on that
        host""",
    Code.LOGS_NOT_LIMITED: "{move_logs}",
    Code.AGENT_FAILED: "please report it with its traceback",
    Code.PROGRESS_EXCESSIVE: """report at most {count} times a second, with at most {total} short
        values""",
    Code.REQUEST_VERSION_DIFFERS: """use the distrun that launched the job, or stop the job by
        SIGTERM to its supervisor""",
    Code.PROCESSES_NOT_ENDED: """they may wait in the kernel for a disk or a device (`ps -o
        pid,stat,wchan:20 -p PID`), or their cgroup is frozen, or they belong to another user, e.g.
        by sudo (`sudo kill -KILL PID`); until they end, nothing starts in their place""",
    Code.PORT_OF_STRANGER: """that user must end them. If a container or sudo of yours started them,
        use your own user id there""",
    Code.PORT_TAKEN: _advice_on_owner,
    Code.RESOURCE_LIMIT: lambda c: _resource_limit(c, 1),
    Code.PORT_HELD_BY_JOB: "end the program that holds it, or give another address in `cluster`",
    Code.PORT_NAME_TAKEN: """that user must end the processes with that name (ss -xlp as root shows
        them), or use other ports""",
    Code.PORT_PRIVILEGED: "give another address in `cluster`",
    Code.TOO_FEW_FREE_PORTS: "widen `ports: {{range: …}}`",
    Code.FILE_NOT_WRITTEN: lambda c: (
        "make room there, send less of it (program.sync), or set XDG_STATE_HOME for its login to "
        "another disk"
        if c.is_disk_full
        else "rename it, leave it out with a .gitignore, or set XDG_STATE_HOME for its login to a "
        "folder that can have it"
    ),
    Code.PORT_NOT_LISTENING: "does another program listen there?",
    Code.CONNECTION_REFUSED: _OPEN_PORTS,
    Code.CONNECTION_TIMED_OUT: _OPEN_PORTS,
    Code.NO_ROUTE: _OPEN_PORTS,
    Code.CONNECTION_FAILED: _OTHER_ADDRESS,
    Code.NAME_NOT_RESOLVED: """name it in DNS or in /etc/hosts on every host, or give the hosts'
        `address:`""",
    Code.GREETING_MISSING: f"""something in between accepts connections, such as a proxy or a
        gateway; {_OTHER_ADDRESS}""",
    Code.GREETING_DIFFERENT: _OTHER_ADDRESS,
    Code.PORTS_NOT_DIALLED: "is the host overloaded?",
    Code.BANDWIDTH_LOW: """all hosts of a group wait for the slowest link: look at its cable, port
        and speed (ethtool), at other traffic, and at which of its networks `address:` names""",
    Code.CLOCK_DIFFERS: "logs are merged by time: set the clocks by NTP (timedatectl, chronyc)",
    Code.GPUS_UNKNOWN: """run nvidia-smi there. After an upgrade of its driver, restart the host;
        lines of `dmesg` with NVRM mean that a GPU has failed""",
    Code.INSPECTION_FAILED: "a file system there may hang: does `df` end?",
    Code.DISK_NEARLY_FULL: "make room on the disk of {path}",
    Code.WORKDIR_UNUSABLE: """create it there, or name one with program.workdir or the host's
        `workdir`""",
    Code.PROGRAM_UNUSABLE: "install it there, or correct program.command",
    Code.INTERPRETER_UNUSABLE: """install it there, or name another with program.python or the
        host's `python`""",
    Code.FOLDER_NOT_SHARED: """mount one file system on all hosts, and write the folder's path there
        in the program's arguments and in `program.shared`""",
    Code.FOLDER_NOT_USABLE: """the user that the tasks run as must read and write it on every host;
        or correct `program.shared`""",
    Code.SCRIPT_UNUSABLE: "copy it to the hosts that lack it; {copying}",
    Code.SCRIPT_DIFFERS: "copy it again to the hosts where it differs; {copying}",
    Code.PYTHON_NOT_RUNNING: "program.python or the host's `python` names the interpreter",
    Code.PYTHON_SLOW: "does it start at once there? Its disk may be slow",
    Code.PYTHON_DIFFERS: """install the same Python on all hosts, or name interpreters that have it
        with the hosts' `python`""",
    Code.TENSORFLOW_DIFFERS: """install the same TensorFlow on all hosts, or name interpreters that
        have it with the hosts' `python`""",
    Code.TENSORFLOW_MISSING: lambda c: _if(
        c.hosts, "install it there, or name an interpreter that has it with the host's `python`"
    ),
    Code.TF_KERAS_MISSING: lambda c: f"install it: {install_command(c.name, _tf_keras(c))}",
    Code.MODULES_MISSING: """install {them} for this interpreter, or name another one with
        program.python or a host's `python`""",
    Code.SERVERS_OPEN_TO_USERS: _LIMIT_PORTS,
    Code.SERVERS_OPEN_TO_NETWORK: _LIMIT_PORTS,
    Code.TOO_FEW_SLOTS: "give the hosts more slots, or the cluster fewer tasks",
    Code.TOO_FEW_GPUS: "lower `gpus` of a role, or list the host's GPUs under `hosts`",
    Code.ADDRESS_SHARED: "give each host an `address:` of its own, by which the others reach it",
    Code.LOOPBACK_IN_CLUSTER: "write the address by which the others reach {hosts}",
    Code.LOOPBACK_OF_HOST: "give {hosts} an `address:` by which the others reach it",
    Code.TF_CONFIG_TOO_LONG: "use fewer tasks, or shorter addresses",
    Code.SSH_NOT_STARTED: "install OpenSSH's client",
    Code.SSH_OPTION_REFUSED: """correct ssh.options: ssh_config(5) has the options and what they can
        be""",
    Code.SSH_CONFIGURATION_REFUSED: "correct that line, or name another file with ssh.config_file",
    Code.HOST_KEY_CHANGED: """if it was installed again, remove its old key: `{command}` shows the
        file and line; if not, somebody may intercept the connection""",
    Code.HOST_KEY_UNKNOWN: "log in once by hand, `{command}`, and compare the key it shows",
    Code.LOGIN_REFUSED: """`{command} true` must work without asking: ssh-copy-id puts your key
        there, ssh-add unlocks it, ssh.user and ssh.identity_file choose the user and the key""",
    Code.SSH_NAME_NOT_RESOLVED: "correct it under hosts, or name it in ~/.ssh/config",
    Code.SSH_PORT_CLOSED: "is sshd running there, and at the port in ssh.port?",
    Code.SSH_NO_ROUTE: "is it switched on, and the network (VPN) up?",
    Code.NO_COMMON_ALGORITHM: """allow one that it offers, as in `ssh: {{options:
        {{HostKeyAlgorithms: +ssh-rsa}}}}`, or bring its sshd up to date""",
    Code.BANNER_MISSING: """are all of them up, without a firewall in between? Raise
        ssh.connect_timeout to wait longer{end_shared}""",
    Code.SSH_TIMED_OUT: """is it switched on, without a firewall in between? Raise
        ssh.connect_timeout to wait longer""",
    Code.CLOSED_BY_SSHD: """its log (journalctl -u ssh) says why; MaxStartups or AllowUsers in
        sshd_config may""",
    Code.CLOSED_BY_PROXY: """`{command} true` must work; check the ProxyCommand or ProxyJump in
        ~/.ssh/config or ssh.options""",
    Code.JUMP_HOST_FAILED: "{advice_within}",
    Code.SSH_FAILED: "try `{command} true`",
    Code.LOGIN_TIMED_OUT: """does `{command} echo fine` print fine at once? If not, it may be out of
        reach, a network on the way may drop large packets (MTU), or a shell profile there waits for
        something or takes the output{end_shared}""",
    Code.PYTHON_MISSING: "install Python 3.8 or newer there",
    Code.PYTHON_TOO_OLD: "make a Python 3.8 or newer the first python3 in its PATH",
    Code.PYTHON_NOT_EXECUTABLE: "try `{command} python3 --version`",
    Code.ACCOUNT_RUNS_NO_COMMANDS: """give it a login shell there, or name another user with
        ssh.user: `{command} exec true` must print nothing""",
    Code.INPUT_TAKEN_BY_LOGIN: """does a shell profile there read standard input or start another
        shell, or the account run another command? `echo fine | {command} cat` must print fine""",
    Code.REMOTE_DISK_FULL: "make room on it",
    Code.AGENT_NOT_STARTED: lambda c: _if(
        c.commands,
        f"`{_command(c)} python3 --version` must print a version; does a shell profile there exit?",
    ),
    Code.AGENT_NOT_CONFIGURED: "{move_logs}",
    Code.HOST_UNUSABLE: _advice_before_start,
    Code.HOSTS_UNUSABLE: lambda c: _advice_within(c, "\n"),
    Code.SUPERVISOR_FAILED: "please report it with its traceback",
    Code.SLURM_TIME_LIMIT: """ask for more time (`slurm.time`, or --time), or let distrun submit
        requeue the job (`slurm.requeue: true`)""",
    Code.SLURM_OUT_OF_MEMORY: """ask for more memory on each node (`slurm.mem_per_node`, or --mem),
        or use smaller batches""",
    Code.SLURM_PREEMPTED: """have Slurm queue the job again (`slurm.requeue: true`), or use a
        partition or QOS that is not preempted""",
    Code.SLURM_NODE_FAILED: """give the job one more spare host (`spares`, and a node for it); with
        salloc or sbatch add --no-kill, or Slurm ends the whole job""",
    Code.SLURM_CANCELLED: """nothing is wrong with the job: `distrun resume` continues it in another
        allocation""",
    Code.SLURM_ALLOCATION_ENDS: """ask for more time (`slurm.time`), or have the job queued again
        (`slurm.requeue: true`)""",
    Code.SRUN_NOT_STARTED: "is this a host of the Slurm cluster? Check PATH",
    Code.SRUN_FAILED: "try `srun --jobid={name} --overlap -N1 -n1 -w NODE hostname`",
    Code.SRUN_TIMED_OUT: "try `srun --jobid={name} --overlap -N1 -n1 -w NODE hostname`",
    Code.POD_NOT_CREATED: lambda c: (
        _advice_on_kubectl(c) or "create what is missing (`kubectl get events`)"
    ),
    Code.POD_UNSCHEDULABLE: """ask for less (`kubernetes.cpus`, `memory`, `gpus`), create what is
        missing, or wait longer (`timeouts.start`)""",
    Code.POD_QUEUED: "wait longer (`timeouts.start`), or use another queue (`kubernetes.queue`)",
    Code.POD_PENDING: "create what is missing (`kubectl get events`), or raise `timeouts.start`",
    Code.POD_IMAGE_MISSING: """check its name in `kubernetes.image` or `kubernetes.pod`, and the
        pull secret of the namespace's service account""",
    Code.POD_NOT_STARTED: "check `kubernetes.pod` and the image; it needs a python3",
    Code.POD_OUT_OF_MEMORY: "ask for more (`kubernetes.memory`), or use smaller batches",
    Code.POD_DELETED: _POD_LOST,
    Code.POD_PREEMPTED: _POD_LOST,
    Code.POD_ENDED: lambda c: (
        "write less there, or raise the limit that the message names, in `kubernetes.pod`"
        if "exceed" in c.text
        else "to stop a job: distrun kill"
        if c.text.startswith("somebody")
        else "`kubernetes.pod` or the image may end it; with `restart`, another takes over"
    ),
    Code.KUBECTL_NOT_STARTED: "install kubectl, or check PATH",
    Code.KUBECTL_FAILED: _advice_on_kubectl,
    Code.KUBECTL_ENDED: _advice_on_kubectl,
    Code.FILES_REFUSED: "{advice_within}",
    Code.FILES_REFUSED_BY_HOSTS: "{advice_within}",
    Code.ONE_MACHINE_TWICE: """name each machine once in `hosts`, with `slots` for its tasks, and
        give each task its own port""",
    Code.PORTS_REFUSED: "{advice_within}",
    Code.ORDER_NOT_ANSWERED: lambda c: (
        "see whether it answers at once if you log in by hand"
        + _if(not c.name, "; if it is only slow, raise timeouts.start")
    ),
    Code.HOST_NOT_PREPARED: _advice_before_start,
    Code.SEVERAL: "{advice_within}",
    Code.PROC_MISSING: """mount it (mount -t proc proc /proc): distrun finds and ends processes by
        it""",
    Code.JOB_FOLDER_NOT_CREATED: """set DISTRUN_HOME to a folder that can be written, on a disk with
        room""",
    Code.FORMER_HOST_UNREACHABLE: """make it reachable, or end the tasks there; then repeat this
        command. If you are certain that nothing of the job runs there, for example because it is
        switched off: distrun resume {job} --assume-dead {host}""",
    Code.FORMER_TASKS_ALIVE: "end them there; then repeat this command",
    Code.TASK_NOT_STARTED: _advice_on_start,
    Code.TASKS_LOST_WITH_HOST: lambda c: _inner_advice(c) or one_line(_CHECK_HOST),
    Code.NO_ROOM: """add spares to `hosts`, or set `restart.min_workers` to continue with fewer
        workers""",
    Code.HOST_LOST: lambda c: _inner_advice(c) or one_line(_CHECK_HOST),
    Code.HOST_FAILED: lambda c: _inner_advice(c) or one_line(_CHECK_HOST),
    Code.STALLED: lambda c: (
        _if(
            c.path,
            f"children that {c.path} made by fork, after TensorFlow had started its threads, may "
            'wait for ever: use multiprocessing.get_context("spawn"), or create them before '
            "TensorFlow is imported; ",
        )
        + _lone_call(c.expected)
        + "the logs end with where each thread of each task was; a longer first step or evaluation "
        "needs a longer timeouts.stall"
    ),
    Code.TASKS_QUIET: lambda c: _lone_call(c.expected) + _WHERE_TASKS_WERE,
    Code.TASKS_STOPPED: lambda c: _lone_call(c.expected) + _WHERE_TASKS_WERE,
    Code.COLLECTIVES_LATE: """create MultiWorkerMirroredStrategy at the top of the script, before
        any tensor, variable, dataset or model, and before anything that lists devices""",
    Code.COLLECTIVES_MISMATCHED: lambda c: (
        f"{_if('shape [0' in c.text, _EMPTY_BATCH)}"
        f"{_lone_call(c.path)}every worker must call the same "
        "collectives in the same order, with the same shapes and types: as many steps for each, "
        "batches of one size (`drop_remainder=True`), and no all-reduce, gather or metric that "
        "only some workers call; saving and evaluating may need all workers, too: `save`, "
        "`evaluate` and `fit` must not be called by the chief alone"
    ),
    Code.GROUP_SIZES_DIFFER: """every task must see the same cluster: leave TF_CONFIG to distrun, do
        not set it in the script, and take the number of workers from the strategy
        (`num_replicas_in_sync`)""",
    Code.KERAS_3_USED: """{use_keras_2}: Keras 3 has no fit for several workers and loses updates
        with parameter servers""",
    Code.KERAS_2_CODE: "{use_keras_2}, or change the code for Keras 3",
    Code.TENSORFLOW_1_CODE: """begin with `import tensorflow.compat.v1 as tf;
        tf.disable_v2_behavior()`, or change the code for TensorFlow 2; what was in `tf.contrib`,
        `tf.examples` and `tf.estimator` needs an older TensorFlow or another package""",
    Code.CLUSTER_SPEC_INCOMPLETE: """take the cluster from TF_CONFIG, which names every role and
        task of the job (`tf.distribute.cluster_resolver.TFConfigClusterResolver()`), not from a
        ClusterSpec of your own; or add the role to `cluster` in the YAML file""",
    Code.TF_CONFIG_MISMATCH: _SAME_CLUSTER,
    Code.TF_CONFIG_REFUSED: _SAME_CLUSTER,
    Code.MODULE_NOT_RUNNABLE: "check `program.module`: it must be importable where the tasks run",
    Code.MODULE_NOT_IMPORTED: """install it for the Python that runs the tasks (`distrun plan` shows
        which), or set `program.python`; modules of your own must be in the script's folder or
        PYTHONPATH""",
    Code.NAME_NOT_IN_MODULE: """the module is there: check the spelling of the name, and the version
        of the package that has the module; a file of your own with the package's name hides the
        package""",
    Code.MAIN_NOT_GUARDED: """put what starts processes under `if __name__ == "__main__":`""",
    Code.INPUT_EMPTY: """give the answer with `program.args`, `env` or a file, and remove `input()`,
        `breakpoint()` and `pdb` from the script; `{logs}` shows what it printed""",
    Code.LIBRARY_NOT_LOADED: lambda c: (
        "install the library where the tasks run, or name its folder in LD_LIBRARY_PATH under "
        "`env` of `program`"
        if "No such file" in c.text or "ould not load" in c.text or "Unable to load" in c.text
        else "import the package that has this operation, such as tensorflow_text, before the "
        "model is loaded"
        if "Op type" in c.text
        else "a library of the system or of the environment is older than the package needs: "
        "install a newer one there (of GLIBCXX: libstdc++, conda's libstdcxx-ng), or a package "
        "that is built for this system"
        if "GLIBC" in c.text
        else "a package was built for another version of what it needs: `pip check` names such "
        "packages; install versions that fit, such as 'numpy<2' or 'protobuf<3.21', or newer ones"
    ),
    Code.GPU_UNUSABLE: """compare the driver (nvidia-smi) and the GPU with what this build of the
        framework needs; cuDNN is also not found if its version is another, or if other programs
        leave it no GPU memory (TF_FORCE_GPU_ALLOW_GROWTH=true): TF_CPP_MIN_LOG_LEVEL=0 shows
        which""",
    Code.SERVER_FAILED: """hosts of a cluster often reach no server on the internet, or only with
        https_proxy under `env` of `program`: download once to a folder that all tasks reach, and
        name it in the script; or check the address; wandb needs none with WANDB_MODE=offline""",
    Code.LOGIN_MISSING: """log in on each host that runs tasks, or give them the key or token as a
        variable: `--env WANDB_API_KEY` (HF_TOKEN, AWS_ACCESS_KEY_ID) takes it from this shell,
        unrecorded""",
    Code.FILES_UNREACHED: """it is the file system, not the program: see where the task runs whether
        it is mounted and may be written to (findmnt -T FOLDER), and whether its server answers
        (dmesg)""",
    Code.FOLDER_CONTESTED: """put DISTRUN_TASK into the path, or let one task create and remove it;
        `os.makedirs(path, exist_ok=True)` allows that another task, or an earlier run, has created
        it""",
    Code.SCRIPT_UNREADABLE: """it is written for bash, and was run with sh: begin it with
        #!/bin/bash, and run it as ./FILE or `bash FILE`""",
    Code.SCRIPT_NOT_FOUND: """check `program` in the spec: a script's path is relative to the spec's
        file""",
    Code.ARGUMENTS_REFUSED: lambda c: (
        "check the arguments after the script; options of `distrun run` go before it: "
        "distrun run -n 2 train.py --epochs 3"
        if c.path
        else "check `program.args`, the roles' own `args`, and everything after `--`"
    ),
    Code.PERMISSION_REFUSED: """check the owner and mode of what the line names, for the user who
        runs the tasks""",
    Code.GPU_MEMORY_EXHAUSTED: """use a smaller batch or model, give each task a GPU of its own
        (`gpus` of its role), or set TF_FORCE_GPU_ALLOW_GROWTH=true if several share one
        (XLA_PYTHON_CLIENT_PREALLOCATE=false for JAX)""",
    Code.MEMORY_EXHAUSTED: lambda c: _raise(
        c, "", "use a smaller batch, shuffle buffer or cache, or fewer tasks a host (`slots`)"
    ),
    Code.DISK_EXHAUSTED: "make room where it writes (df -h, df -i, quota), or write elsewhere",
    Code.FILES_EXHAUSTED: lambda c: _raise(
        c, "raise the limit on open files (`ulimit -n`)", "let it close files that it does not need"
    ),
    Code.LIMIT_HIT: lambda c: _raise(c, "raise that limit where it runs", "use less of it"),
    Code.THREADS_FORBIDDEN: """the container's seccomp profile does not know the call for new
        threads: update Docker to 20.10.10 or newer with its libseccomp, or use docker run
        --security-opt seccomp=unconfined""",
    Code.NAME_REPLACED: "in its place there is {expected}",
    Code.FILE_LOCKED: """each task needs a file of its own, or one task writes it: two workers that
        save to the same path (`best.h5`) lock each other out; put DISTRUN_TASK or DISTRUN_RANK into
        the path""",
    Code.FILE_DAMAGED: """copy or download it again (`git lfs pull` for a file that is a few lines
        of text); of a checkpoint, remove it, so that an older one is restored: its path ends before
        `.index` or `.data-`; let one task write it, under another name until it is whole""",
    Code.CONTAINER_NOT_STARTED: """run the same command by hand on the task's host; `--gpus` and
        `--runtime=nvidia` need the NVIDIA Container Toolkit there, and a name (`--name`) is free
        only once its last container is removed (`--rm`)""",
    Code.SHELL_NOT_SET_UP: """name the environment's Python instead: `program.python:
        /path/to/env/bin/python` (`conda env list` shows the path); or begin the script with `source
        /path/to/conda/etc/profile.d/conda.sh`, or `source /etc/profile` for `module`""",
    Code.PROCESSES_EXHAUSTED: lambda c: _raise(
        c,
        "raise the limit on processes (`ulimit -u`, or pids.max of the cgroup)",
        "let the tasks use fewer threads (OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, worker processes)",
    ),
    Code.PORT_NOT_BOUND: """another program may have the port (ss -ltnp shows it), or its address is
        none of this host's: a server on 0.0.0.0 listens at all of them""",
    Code.ADDRESS_NOT_OWN: """a server can listen only at addresses of its own host, which `ip
        address` lists: 0.0.0.0 means all; a client with this error has used up its ports, or has no
        route""",
    Code.PORT_IN_USE: lambda c: _inner_advice(c) or one_line(_FREE_PORT),
    Code.OWN_PORT_IN_USE: lambda c: _inner_advice(c) or one_line(_SHARE_PORT).format(port=c.port),
    Code.SOME_PORT_IN_USE: lambda c: (
        _inner_advice(c)
        or (
            one_line(f"{_FREE_PORT}; if it is {c.port}, the task's own: {_SHARE_PORT}").format(
                port=c.port
            )
        )
    ),
    Code.DATA_EXHAUSTED: """every worker needs as many batches as the others: repeat() the dataset
        and count steps, or check how it is sharded""",
    Code.USAGE_SHOWN: """give the program the command or the arguments that it asks for, not --help;
        if its folder has a checkpoint of the last step, raise max_steps, or name another""",
    Code.DATA_MISSING: """check the folder and the pattern of the data where the tasks run: a
        relative path begins at `program.workdir`, and each worker needs a part of the files""",
    Code.VALUES_NOT_FINITE: """lower the learning rate, clip gradients, or inspect the sample that
        caused it""",
    Code.PROXY_ANSWERED: """unset http_proxy and https_proxy for the tasks, or name the cluster's
        hosts in no_grpc_proxy (distrun does, unless the spec or the program sets it)""",
    Code.PEERS_LOST: "check the network between the hosts, and what the other tasks printed last",
    Code.EXCEPTION_RAISED: "see its traceback: {logs} -t {task}",
    Code.CHECKPOINT_NOT_FOUND: """all hosts must see the folder of the checkpoints, also those of
        parameter servers: mount one file system on them, and write the folder's path there in the
        program's arguments and in `program.shared`, so that the hosts are checked for it""",
    Code.FILE_NOT_SENT: """take it out of .gitignore, list it in `program.sync`, or put it where all
        hosts see it""",
    Code.FILE_ELSEWHERE: """build the path from that of the script
        (`pathlib.Path(__file__).parent`), or name the script's folder in `program.workdir`""",
    Code.INTERRUPTED: "somebody sent it SIGINT: a scheduler, a shell, a person",
    Code.CHILD_KILLED: lambda c: (
        f"memory ran out{'' if c.within else ', perhaps (see dmesg)'}: use fewer worker processes, "
        "a smaller batch or cache"
        if c.signal == signal.SIGKILL
        else _FAULTS.get(
            c.signal, "a fault in native code of the child: see the lines that it printed last"
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
    Code.SHELL_FAILED: "check `program` in the spec, and the commands in the script",
    Code.EXITED_BY_ITSELF: lambda c: (
        "if that is what main() returns: `sys.exit(main())`, and absl's `app.run(main)`, print it "
        "and exit 1, unless it is None or 0: let main() return nothing"
        if c.name == "sys.exit"
        else _if(c.name, f"set {c.name} (`env` of `program`) to see where; ")
        + "see what it printed last: {logs} -t {task}".format_map(_Fields(c))
    ),
    Code.EXITED_AFTER_EXCEPTION: """Python exits 1 at once by an exception that is not caught: the
        program has caught this one, or what runs it (make, xargs) exits with a code of its own: see
        what was printed last: {logs} -t {task}""",
    Code.EXITED_WHILE_NEEDED: lambda c: (
        f"{_lone_call(c.path)}every task must take part to the end: as many steps or batches for "
        "each worker, and servers that join()"
        + _if(
            c.name,
            f"; or, if each {c.name} trains by itself, as in TensorFlow 1, write "
            "`workers: independent`",
        )
    ),
    Code.LEFT_AT_WORK: """start the program so that its script waits for it: without `&`, with
        `wait` at the end, or in Python with the wait() of its Popen""",
    Code.CHILD_CRASHED: lambda c: cause_advice(c._replace(code=Code.CHILD_KILLED)) or "",
    Code.EXCEPTION_HIDDEN: lambda c: (
        f"{_if(c.path, _unhidden(c.path))}a program should not exit 0 after an exception: raise "
        "it again, or sys.exit(1)"
    ),
    Code.TIMEOUT_HIDDEN: lambda c: f"{_unhidden(c.path)}or raise the limit",
    Code.COMMAND_FAILED: lambda c: f"{_unhidden(c.path)}or end that command with `|| exit 1`",
    Code.EXCEPTION_ASIDE: """let the main thread check the `result()` of a future, or the exit code
        of a child, and call sys.exit(1)""",
    Code.LEFT_BEHIND: """every task must take part to the end; a handler of SIGTERM that saves
        should exit 143, so that distrun recognizes a preemption""",
    Code.PREEMPTED_SILENTLY: """a handler of SIGTERM that saves should exit 143, so that distrun
        restarts it (`restart`)""",
    Code.NEVER_LISTENED: lambda c: (
        f"create the strategy that the spec names{_if(c.name, f' (`tf.distribute.{c.name}`)')}, "
        "with the TF_CONFIG that distrun sets, before anything else that uses TensorFlow"
    ),
    Code.TRAINED_ALONE: """every task must see the same cluster: leave TF_CONFIG to distrun, do not
        set it in the script, and create the strategy without a cluster of your own""",
    Code.STARTS_UNEVEN: """all tasks must restore the same checkpoint: from a folder that every host
        sees (`program.shared`), saved by one task, or by all in the same step""",
    Code.LISTENS_ON_LOOPBACK: lambda c: (
        "let its server listen on 0.0.0.0 (all addresses), or on DISTRUN_ADDRESS"
        + _if(
            "127.0.1.1" in "".join(c.addresses),
            "; /etc/hosts there gives 127.0.1.1 for the host's own name",
        )
    ),
    Code.SUSPENDED: _WAS_STOPPED,
    Code.NOT_ANSWERING: _WAS_STOPPED,
    Code.COLLECTIVE_TIMED_OUT: lambda c: (
        f"{_lone_call(c.path)}let no task do alone what takes so long (input, evaluation, a save), "
        "or raise `timeout_seconds` of tf.distribute.experimental.CommunicationOptions; every "
        "worker must take as many steps"
    ),
    Code.SERVED_ELSEWHERE: f"""{_SAME_CLUSTER}; if the program's own TF_CONFIG is meant, write
        `program.tf_config: mine`""",
    Code.WAITED_FOR_OTHERS: _SAME_CLUSTER,
    Code.RECORD_REMOVED: """leave the job's folders alone until the job has ended, in DISTRUN_HOME
        and in the state folder of other hosts: a restart writes there; or check that the host's
        disk is still mounted""",
    Code.JOB_DID_NOT_START: lambda c: (
        _inner_advice(c) or "see where its tasks wait, or raise timeouts.start"
    ),
    Code.JOB_DID_NOT_END: "see where its tasks wait, or raise timeouts.run",
    Code.JOB_DISK_FULL: "make room there, or set {folder_variable} to another disk",
}
