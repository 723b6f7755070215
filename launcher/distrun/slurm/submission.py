"""Queues jobs: a job's folder on this side, and its batch script on Slurm's."""

from __future__ import annotations

from pathlib import Path

from distrun.agent.linux.facts import pid_namespace
from distrun.agent.protocol import Cause
from distrun.codec import encode
from distrun.errors import HostError, UsageError
from distrun.job import folder as job_folder
from distrun.job import queued_job
from distrun.job.folder import BatchJob, JobFolder, JobStore
from distrun.slurm import batch_job, batch_script
from distrun.spec.model import Spec

_SUBMIT_SECONDS = 60.0
"""How long `submit` may take from sbatch until its job's folder is complete."""


def submit(store: JobStore, spec: Spec) -> JobFolder:
    """Make a job and queue it. Its record exists before Slurm knows of it.

    Raises SchedulerError, and leaves nothing of the job; or OSError.
    """
    folder = store.new_folder(spec.name)
    created = _create(folder, spec)
    try:
        _queue(created, spec)
    except BaseException:
        created.remove()
        raise
    created.release_lock()
    return folder


def register(store: JobStore, spec: Spec, number: str) -> JobFolder:
    """Return the job of a batch script that was given to sbatch by hand; it is made at first."""
    slug = store.new_folder(spec.name).job_id.rpartition("-")[0]
    folder = job_folder.JobFolder(store.jobs / f"{slug}-{number}")
    if folder.path.exists():
        return folder
    created = _create(folder, spec)
    _note(created, spec, number)
    created.release_lock()
    return folder


def resubmit(folder: JobFolder, spec: Spec) -> None:
    """Queue a submitted job again that has ended. Raises UsageError, SchedulerError or OSError."""
    found = queued_job.look(folder)
    if found.is_active:
        raise UsageError(
            f"job {folder.job_id} is in the queue of Slurm, or runs",
            hint=f"to follow it: distrun logs -f {folder.job_id}",
        )
    if not folder.batch_script.exists():
        raise UsageError(
            f"job {folder.job_id} was queued with sbatch by hand",
            hint="to start it again: sbatch FILE",
        )
    with folder.locked():
        folder.stop_file.unlink(missing_ok=True)
        _queue(folder, spec)


def note_requeue(folder: JobFolder, spec: Spec, number: str, cause: Cause | None) -> None:
    """Record that a job goes back to the queue. Raises OSError."""
    with folder.locked():
        _note(folder, spec, number, cause)


def note_start(folder: JobFolder, number: str) -> None:
    """Note that the batch script of a job runs on this machine.

    It waits for `submit`, which may not have noted Slurm's id yet. Raises HostError: another
    process has the job; and OSError.
    """
    try:
        with folder.locked(_SUBMIT_SECONDS):
            pass
    except BlockingIOError:
        raise HostError(f"job {folder.job_id} is run or removed by another process") from None
    batch = folder.batch_job()
    requeues = batch is not None and batch.requeues
    folder.note_batch_job(BatchJob(id=number, runs_in=pid_namespace(), requeues=requeues))


def _create(folder: JobFolder, spec: Spec) -> JobFolder:
    """Create a job's folder and lock it. Raises OSError."""
    created = job_folder.create(folder, spec.source.encode("utf-8", "surrogateescape"))
    job_folder.replace_file(created.resolved_spec_file, encode(spec))
    return created


def _queue(folder: JobFolder, spec: Spec) -> None:
    home, output = folder.path.parent.parent, Path(folder.shown(folder.batch_log))
    script = batch_script.write(spec, home, job_id=folder.job_id, output=output)
    folder.batch_script.write_text(script, "utf-8", "replace")
    number = batch_job.submit(script)
    try:
        job_folder.replace_file(folder.resolved_spec_file, encode(spec))
        _note(folder, spec, number)
    except BaseException:
        batch_job.cancel(BatchJob(id=number))
        raise


def _note(folder: JobFolder, spec: Spec, number: str, cause: Cause | None = None) -> None:
    queued_job.record_queued(folder, spec, number, batch_job.NAME, cause)
    folder.note_batch_job(BatchJob(id=number, requeues=spec.slurm.requeue))
