"""What `status` says of an earlier failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.job.job import Job as ReadJob
from distrun.job.notes import job_notes
from distrun.verdict.model import Kind, Verdict

from .histories import MWM, Job, because


def aborted(kind: Kind) -> Job:
    """A job that failed by no task."""
    job = Job()
    job.created(MWM)
    cause = Cause(Code.HOST_LOST, host="h2", within=(because("silent"),))
    job(events.Aborted, cause=cause, exit_code=69)
    job(events.VerdictReached, verdict=Verdict(task=None, kind=kind, cause=cause))
    job(events.JobEnded, outcome=job.outcome)
    return job


def resume(job: Job) -> None:
    created = job.history[0]
    job.happened(events.JobResumed(**{**vars(created), "at": 9.0}))
    job.planned("worker:0")
    job.started("worker:0")


def notes(job: Job, folder: Path) -> str:
    return "\n".join(job_notes(ReadJob(JobFolder(folder), job.state)))


@pytest.mark.parametrize("kind", [Kind.OTHER, Kind.HOST_LOST])
def test_a_job_that_succeeded_after_its_resume_needs_no_advice(kind: Kind, tmp_path: Path) -> None:
    job = aborted(kind)
    assert "  try  " in notes(job, tmp_path)
    resume(job)
    if kind is Kind.OTHER:
        assert "  try  " not in notes(job, tmp_path)
    job.gone("worker:0")
    job(events.JobEnded, outcome=job.outcome)
    assert "  try  " not in notes(job, tmp_path)
