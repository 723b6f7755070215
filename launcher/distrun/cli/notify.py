"""The command of `--notify`, which is run when a job has ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from distrun.cli import console

if TYPE_CHECKING:
    from distrun.jobstore import JobFolder

_SECONDS = 60.0
"""How long the command may take."""
_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for a command that takes longer."""
_WATCHER = "from distrun.cli.main import main; main()"


def run_notify_command(command: str, folder: JobFolder) -> None:
    """Run the command in this process's environment. If it fails, a message says so."""
    from distrun.cli.job_view import job_view

    status = {"version": console.JSON_VERSION, "job": job_view(folder).to_json()}
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        console.print_message(f"the command of --notify was not started: {error.strerror}")
        return
    with process:
        try:
            process.communicate(f"{json.dumps(status)}\n".encode(), _SECONDS)
        except subprocess.TimeoutExpired:
            console.print_message(f"the command of --notify took over {_SECONDS:g} s: it is ended")
        finally:
            _end(process)
    if process.returncode > 0:
        console.print_message(f"the command of --notify exited with {process.returncode}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, with the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:  # not reaped yet: the id is its own
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)


def start_notify_watcher(command: str, folder: JobFolder) -> None:
    """Start a process that waits for the job's end and then runs the command.

    It is not part of the job, so it also runs the command if the job's supervisor dies. What both
    print is in a file of the job.
    """
    from distrun.supervisor.hosts.local import python_with_packages

    arguments = ("wait", "--notify", command, "--", folder.job_id)
    output = os.open(folder.notify_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(output, "wb") as log:
        subprocess.Popen(
            python_with_packages(_WATCHER, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
