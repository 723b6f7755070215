"""The command of `--notify`, which is run when a job has ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from distrun.agent.linux import job_processes, processes, syscalls
from distrun.cli import console, signals
from distrun.cli.options import NOTIFY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrun.jobstore import JobFolder

_SECONDS = 60.0
"""How long the command may take."""
_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for a command that takes longer."""
_MAIN = "from distrun.cli.main import main; main()"


def run_notify_command(command: str, folder: JobFolder) -> None:
    """Run the command in this process's environment. If it fails, a message says so.

    When the shell has exited, the processes that it left in its session are ended, too.
    """
    from distrun.cli.job_view import job_view

    status = {"version": console.JSON_VERSION, "job": job_view(folder, is_timed=True).to_json()}
    sys.stdout.flush()
    process: subprocess.Popen[bytes] | None = None
    try:
        # A signal that arrives before `process` is known would leave the command running.
        with signals.deferred(), _as_file(f"{json.dumps(status)}\n".encode()) as stdin:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=stdin,
                env={name: each for name, each in os.environ.items() if name != NOTIFY_VARIABLE},
                start_new_session=True,
            )
        has_exited = _wait_for_exit(process.pid)
    except OSError as error:
        console.print_message(f"the command of --notify was not started: {error.strerror}")
        return
    finally:
        if process is not None:
            _end_session(process)
    if not has_exited:
        console.print_message(f"the command of --notify took over {_SECONDS:g} s and was ended")
    elif process.returncode > 0:
        console.print_message(f"the command of --notify exited with {process.returncode}")
    elif process.returncode < 0:
        name = syscalls.signal_name(-process.returncode)
        console.print_message(f"the command of --notify was killed by {name}")


@contextlib.contextmanager
def _as_file(text: bytes) -> Iterator[int]:
    """Yield a descriptor to read the text from. A file needs nobody who writes while it is read."""
    with open(os.memfd_create("status"), "wb+") as file:
        file.write(text)
        file.seek(0)
        yield file.fileno()


def _wait_for_exit(pid: int) -> bool:
    """Wait for a child's exit without reaping it. Returns False if that takes too long."""
    deadline = time.monotonic() + _SECONDS
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(processes.KILL_INTERVAL)
    return True


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the processes of a command: SIGTERM, and SIGKILL after a second.

    The shell is reaped last: until then, no other session can have its id.
    """
    try:
        job_processes.end(_session(process.pid), _GRACE)
    finally:  # a second signal may have interrupted this, or processes may have been added
        for each in _session(process.pid):
            processes.send(each, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


def _session(leader: int) -> list[processes.Process]:
    found = (processes.find(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [each for each in found if each and each.session == leader and not each.is_zombie]


def distrun_command(*arguments: str) -> list[str]:
    """Return a command that runs distrun with these arguments, by this interpreter."""
    from distrun.supervisor.hosts.local import python_with_packages

    return python_with_packages(_MAIN, *arguments)


def start_notify_watcher(command: str, folder: JobFolder) -> None:
    """Start a process that waits for the job's end and then runs the command.

    It is not part of the job, so it also runs the command if the job's supervisor dies. What both
    print is in a file of the job. The command may contain a secret and the job may take weeks, so
    the command is not among the arguments, which other users can see.
    """
    output = os.open(folder.notify_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(output, "wb") as log:
        subprocess.Popen(
            distrun_command("wait", "--", folder.job_id),
            env={**os.environ, NOTIFY_VARIABLE: command},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
