"""Executes a task's program in its own session, or finds out why that fails."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Dict, List, Mapping, NoReturn, Optional, Tuple, Union

from distrun.agent.linux import labels, syscalls
from distrun.agent.linux.regular import closing, open_regular, open_to_append
from distrun.agent.protocol import Cause, Code, StartTask
from distrun.agent.structs import Struct

if TYPE_CHECKING:
    from distrun.agent.protocol.probe_messages import Listen, Program
    from distrun.agent.tasks.notify import NotifySocket

_EXIT_NOT_EXECUTED = 127
_ERROR_BYTES = 4096
_LONGEST_WORD = 32 * 4096
"""Bytes of an argument or a variable, with its end, that Linux refuses; see execve(2)."""


class Start(Struct):
    """The start of one attempt, prepared: its output goes to `log`, its progress to `notify`.

    `label`: see :mod:`.labels`. `log_start`: the size of the log before the attempt's output.
    """

    order: StartTask
    log: str
    env: Dict[bytes, bytes]
    notify: Optional[NotifySocket]
    label: int
    log_start: int


def execute(start: Start) -> Tuple[int, int]:
    """Fork a child that becomes the task's program; does not wait for it. Raises OSError.

    The child leads a session of its own, gets SIGTERM if this process dies, reads /dev/null and
    appends its output to its log. It inherits no other descriptor. Returns its id and the reading
    end of a pipe that it holds with close-on-exec: that ends once the program runs. If that fails,
    the pipe has the reason.
    """
    agent = os.getpid()
    syscalls.changed_signals()  # each fork would look for them
    pid, pipe = syscalls.fork_with_pipe()
    if pid == 0:
        _become(start, agent, pipe)
    os.set_blocking(pipe, False)
    return pid, pipe


def _become(start: Start, agent: int, report: int) -> NoReturn:
    stage = "prepare"
    try:
        os.setsid()
        syscalls.die_with_parent(agent, signal.SIGTERM)
        signal.set_wakeup_fd(-1)
        for each in syscalls.changed_signals():
            signal.signal(each, signal.SIG_DFL)  # as programs expect it
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        syscalls.restore_descriptor_limit()
        labels.put(start.label)
        stage = "log"
        log = open_to_append(start.log)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for to, descriptor in enumerate((nothing, log.fileno(), log.fileno())):
            os.dup2(descriptor, to)
        stage = "workdir"
        os.chdir(os.fsencode(workdir(start.order)))
        stage = "program"
        argv = [_to_bytes(word) for word in start.order.argv]
        os.execvpe(argv[0], argv, start.env)  # noqa: S606 - no shell is meant
    except OSError as error:
        number = error.errno or 0
        if stage == "program" and number == errno.EACCES:
            number = _reason(argv, start.env)
        os.write(report, "{} {}".format(stage, number).encode("ascii"))
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        os.write(report, "defect {!r}".format(error).encode("utf-8", "replace")[:_ERROR_BYTES])
    finally:
        os._exit(_EXIT_NOT_EXECUTED)


def workdir(order: Union[StartTask, Program, Listen]) -> str:
    if order.or_home and not os.access(os.fsencode(order.workdir), os.X_OK):
        return os.path.expanduser("~")
    return order.workdir


def write_marker(log: str, text: str) -> None:
    """Append the agent's own line to a log, after a newline if the last line is unfinished.

    Raises OSError if the disk has no room: the attempt's output would have none either.
    """
    with closing(open_regular(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)) as output:
        size = os.fstat(output).st_size
        unfinished = size > 0 and os.pread(output, 1, size - 1) != b"\n"
        line = _to_bytes("{}{}\n".format("\n" if unfinished else "", text))
        if os.write(output, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def environment(order: Union[StartTask, Program]) -> Dict[bytes, bytes]:
    """This process's environment without DISTRUN_* and `unset`, overridden by the order's."""
    removed = {_to_bytes(name) for name in order.unset}
    env = {
        name: value
        for name, value in os.environb.items()
        if name not in removed and not name.startswith(b"DISTRUN_")
    }
    env.update((_to_bytes(name), _to_bytes(value)) for name, value in order.env.items())
    if isinstance(order, StartTask) and order.tf_config:
        env[b"TF_CONFIG"] = _to_bytes("".join(order.tf_config))
    return env


def read_exec_status(pipe: int, order: StartTask) -> Optional[Cause]:
    """Return why the program could not be executed. Closes the pipe, which is readable."""
    with closing(pipe):
        raw = os.read(pipe, _ERROR_BYTES)
    if not raw:
        return None
    stage, _, rest = raw.decode("utf-8", "replace").partition(" ")
    if not rest.lstrip("-").isdigit():
        return Cause(Code.AGENT_DEFECT, text=rest)
    number = int(rest)
    if stage == "workdir":
        return Cause(Code.WORKDIR_NOT_ENTERED, path=order.workdir, errno=number)
    if stage == "log":
        return Cause(Code.LOG_NOT_OPENED, path=order.log, errno=number)
    if stage != "program":
        return Cause(Code.PROCESS_NOT_MADE, errno=number)
    return _program_cause(number, order.argv[0], order.workdir)


def _reason(argv: List[bytes], env: Mapping[bytes, bytes]) -> int:
    """Why a program could not be executed, if the first error, perhaps of a folder, was EACCES."""
    words = [*argv, *(name + b"=" + value for name, value in env.items())]
    if any(len(word) >= _LONGEST_WORD for word in words):
        return errno.E2BIG
    path = env.get(b"PATH", os.fsencode(os.defpath))
    paths = (os.path.join(folder, argv[0]) for folder in path.split(b":"))
    return errno.EACCES if b"/" in argv[0] or any(map(os.path.lexists, paths)) else errno.ENOENT


def _program_cause(number: int, name: str, workdir: str) -> Cause:
    if number == errno.ENOENT:
        interpreter = _interpreter(os.path.join(workdir, name)) if "/" in name else ""
        if interpreter:
            return Cause(Code.INTERPRETER_NOT_FOUND, name=name, path=interpreter)
        return Cause(Code.PROGRAM_NOT_FOUND, name=name, path=workdir)
    if number == errno.EACCES:
        return Cause(Code.PROGRAM_NOT_EXECUTABLE, name=name)
    if number == errno.ENOEXEC:
        return Cause(Code.PROGRAM_FORMAT_UNKNOWN, name=name)
    if number == errno.E2BIG:
        return Cause(Code.ARGUMENTS_TOO_LONG)
    return Cause(Code.PROGRAM_NOT_EXECUTED, name=name, errno=number)


def _interpreter(script: str) -> str:
    """The interpreter that a script's first line names; empty if it names none.

    A carriage return, with which lines end on Windows, is a part of it, as for Linux.
    """
    try:
        with open(open_regular(script, os.O_RDONLY), "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    words = line[2:].rstrip(b"\n").replace(b"\t", b" ").strip(b" ")
    return os.fsdecode(words.partition(b" ")[0]) if line.startswith(b"#!") else ""
