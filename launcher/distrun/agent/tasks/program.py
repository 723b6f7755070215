"""Executing a task's program in a session of its own, and saying exactly why it could not be."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from typing import TYPE_CHECKING, Dict, List, NoReturn, Optional, Tuple, Union

from distrun.agent.linux import syscalls
from distrun.agent.protocol import StartTask
from distrun.agent.structs import Struct

if TYPE_CHECKING:
    from distrun.agent.protocol.probe_messages import Program

_EXIT_NOT_EXECUTED = 127
_ERROR_BYTES = 4096


class Execution(Struct):
    """A child on its way to its program. `verdict` ends when that runs, or tells why not."""

    pid: int
    verdict: int


def execute(order: StartTask, log: str, env: Dict[bytes, bytes]) -> Execution:
    """Fork a child that becomes the task's program; does not wait for it.

    The child leads a session of its own, gets SIGTERM should this process die, reads /dev/null
    and appends what it prints to `log`. It inherits no other descriptor.
    """
    agent = os.getpid()
    verdict, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(order, log, env, agent, report)
    os.close(report)
    os.set_blocking(verdict, False)
    return Execution(pid, verdict)


def _become(
    order: StartTask, log: str, env: Dict[bytes, bytes], agent: int, report: int
) -> NoReturn:
    stage = "prepare"
    try:
        os.setsid()
        syscalls.die_with_parent(agent, signal.SIGTERM)
        default_signals()
        _restore_descriptor_limit()
        stage = "log"
        _redirect(log)
        stage = "workdir"
        os.chdir(os.fsencode(workdir(order)))
        stage = "program"
        argv = [_to_bytes(word) for word in order.argv]
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is meant
    except OSError as error:
        os.write(report, "{} {}".format(stage, error.errno or 0).encode("ascii"))
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        os.write(report, "defect {!r}".format(error).encode("utf-8", "replace")[:_ERROR_BYTES])
    finally:
        os._exit(_EXIT_NOT_EXECUTED)


def workdir(order: Union[StartTask, Program]) -> str:
    """The folder to run in, where there is a choice."""
    if order.or_home and not os.access(os.fsencode(order.workdir), os.X_OK):
        return os.path.expanduser("~")
    return order.workdir


def default_signals() -> None:
    """Undo what Python, the agent and the launching shell changed: programs expect the defaults."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


_original_limit: Optional[Tuple[int, int]] = None
"""This process's limit of descriptors as it was inherited, which tasks are to have."""


def raise_descriptor_limit() -> None:
    """Let the agent have as many descriptors as it may: some five for each task."""
    global _original_limit  # noqa: PLW0603 - a fact of this process, set once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _original_limit = (soft, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _restore_descriptor_limit() -> None:
    # Should somebody have lowered the agent's own since, a task has what is left.
    if _original_limit is not None:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _original_limit)


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def write_marker(log: str, text: str) -> None:
    """Append a line of the agent's own to a log, below whatever a killed attempt left unfinished.

    Raises OSError where the disk has no room for it: there is none for the attempt's output then.
    """
    output = os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(output).st_size
        unfinished = size > 0 and os.pread(output, 1, size - 1) != b"\n"
        line = _to_bytes("{}{}\n".format("\n" if unfinished else "", text))
        if os.write(output, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(output)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def environment(order: Union[StartTask, Program]) -> Dict[bytes, bytes]:
    """This process's environment, less DISTRUN_* and `unset`, with the order's over it."""
    removed = {_to_bytes(name) for name in order.unset}
    env = {
        name: value
        for name, value in os.environb.items()
        if name not in removed and not name.startswith(b"DISTRUN_")
    }
    env.update((_to_bytes(name), _to_bytes(value)) for name, value in order.env.items())
    return env


def read_verdict(execution: Execution, order: StartTask) -> str:
    """Why the program could not be executed, for people; empty where it was.

    To be called once, when `execution.verdict` is readable; closes it.
    """
    try:
        raw = os.read(execution.verdict, _ERROR_BYTES)
    finally:
        os.close(execution.verdict)
    if not raw:
        return ""
    stage, _, rest = raw.decode("utf-8", "replace").partition(" ")
    if not rest.lstrip("-").isdigit():
        return "the agent failed before executing it: {}".format(rest)
    return _explain(stage, int(rest), order)


def _explain(stage: str, number: int, order: StartTask) -> str:
    why = os.strerror(number)
    if stage == "workdir":
        return "its working folder {!r} cannot be entered: {}".format(order.workdir, why)
    if stage == "log":
        return "its log {!r} cannot be opened: {}".format(order.log, why)
    if stage != "program":
        return "a process for it could not be made: {}".format(why)
    return _explain_program(number, order.argv, order.workdir)


def _explain_program(number: int, argv: List[str], workdir: str) -> str:
    name = argv[0]
    if number == errno.ENOENT:
        interpreter = _interpreter(os.path.join(workdir, name)) if "/" in name else ""
        if interpreter:
            return "{!r} names an interpreter that is not there: {}".format(name, interpreter)
        where = "" if "/" in name else " in PATH"
        return "there is no program {!r}{}; check the spec's program".format(name, where)
    if number == errno.EACCES:
        return "{!r} may not be executed: is it a file, and executable?".format(name)
    if number == errno.ENOEXEC:
        return "{!r} is no program: its first line should be like #!/bin/sh".format(name)
    if number == errno.E2BIG:
        return "its arguments and environment are too large for Linux (128 KiB for one string)"
    return "{!r} cannot be executed: {}".format(name, os.strerror(number))


def _interpreter(script: str) -> str:
    """What a script's first line names; empty where it names nothing."""
    try:
        with open(script, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    return os.fsdecode(line[2:].strip()) if line.startswith(b"#!") else ""
