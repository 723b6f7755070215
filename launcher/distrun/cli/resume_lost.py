"""`distrun launch --resume-lost`."""

from __future__ import annotations

import subprocess

from distrun.cli import console
from distrun.job.folder import JobStore
from distrun.job.resumption import was_broken_off
from distrun.supervisor.hosts.local import python_with_packages

_MAIN = "from distrun.cli.main import main; main()"


def resume_lost() -> int:
    """Resume all jobs that a reboot has interrupted, each detached.

    Returns 0, or the exit code of the first that could not be resumed.
    """
    store = JobStore.default()
    lost = [folder for folder in store.folders() if was_broken_off(folder)]
    if not lost:
        console.print_message("no job was lost")
    # Their output goes to this command's, line by line; each takes as long as its hosts need.
    children = [
        subprocess.Popen(
            python_with_packages(_MAIN, "resume", "-d", "--", folder.job_id),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for folder in lost
    ]
    codes = [child.wait() for child in children]
    return next((code for code in codes if code), 0)
