"""How commands find a job, and what they print of one that cannot be known as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from distrun.cli import console

if TYPE_CHECKING:
    from distrun.job.folder import JobFolder
    from distrun.job.job import Job


def find_job(job: str | None, *, tells: bool = False) -> JobFolder:
    """Find a job that a command shows. Prints what is wrong with its record; advice names it.

    `tells`: see :func:`refresh`; other commands print it with what they show.
    """
    from distrun.job import queued_job
    from distrun.words.causes import advise_about

    folder = queued_job.find(job)
    refresh(folder, tells=tells)
    advise_about(folder.job_id)
    tell_record_fault(folder)
    return folder


def refresh(folder: JobFolder, *, tells: bool = True) -> None:
    """Bring here what is new of a submitted job. `tells`: print why that fails."""
    from distrun.job import queued_job

    if not queued_job.refresh(folder) and tells:
        problem = queued_job.look(folder).problem  # none: it only has no pod at the moment
        if problem is not None:
            console.print_error(problem)


def tell_record_fault(folder: JobFolder) -> None:
    """Print that a job's record is missing, cut or damaged at its beginning, if it is."""
    fault = folder.record_fault()
    if fault is not None:
        console.print_message(f"the record of job {folder.job_id} {fault}: {folder.events_file}")


def tell_problem(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.queued is not None and job.queued.problem is not None:
            console.print_error(job.queued.problem)
            return
