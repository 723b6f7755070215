"""`distrun batch-run`: what the batch script of a submitted job runs."""

from __future__ import annotations

import functools
import os
import signal

import click

from distrun.agent.protocol import Cause, Code, StopJob
from distrun.cli import console, options
from distrun.cli.launch import launch
from distrun.errors import EXIT_KILLED, HostError, UsageError
from distrun.job import queued_job, resumption, stop_order
from distrun.job.events import Result
from distrun.job.folder import BatchJob, JobFolder, JobStore
from distrun.job.scheduler import SUBMITTED
from distrun.lifecycle import SLURM_STOPS, JobState
from distrun.slurm import batch_job, step_end, submission
from distrun.spec.loader import load, reload
from distrun.spec.model import Spec


@click.command("batch-run", cls=options.WithProgramArguments, hidden=True)
@click.option("--job", "job_id", help="The job that was submitted.")
@options.spec_argument(required=False)
@click.argument("args", nargs=-1)
@options.name_option
@options.overrides_option
def command(
    job_id: str | None,
    spec_path: str | None,
    args: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
) -> int:
    """Run a job in its Slurm allocation, or continue it there. Batch scripts call this.

    `distrun submit` writes such scripts; see `distrun submit --dry-run`.
    """
    number = os.environ.get(SUBMITTED) or os.environ.get("SLURM_JOB_ID")
    if not number:
        raise UsageError(
            "batch-run is for batch scripts of Slurm, and for pods",
            hint="queue a job with: distrun submit SPEC",
        )
    store = JobStore.default()
    if job_id is not None:
        folder = JobFolder(store.jobs / job_id)
        if not folder.path.is_dir():
            raise HostError(
                f"the record of job {job_id} is not on this node: {folder.path}",
                hint="submit with DISTRUN_HOME in a folder that login node and nodes share",
            )
    elif spec_path is not None:
        spec = load(spec_path, overrides=overrides, extra_args=args, name=name)
        folder = submission.register(store, spec, number)
    else:
        raise click.UsageError("Missing argument 'SPEC'.")
    # A pod's output is shown by `kubectl logs`, and that of sbatch by hand is in its own file.
    return _run(folder, number, shows_output=job_id is None or SUBMITTED in os.environ)


def _run(folder: JobFolder, number: str, *, shows_output: bool) -> int:
    submission.note_start(folder, number)
    order = stop_order.left(folder)
    if order is not None:
        queued_job.record_stop(folder, order)
        return EXIT_KILLED
    state = folder.state()
    resumption.require_resumable(folder, state)
    recorded = resumption.recorded_spec(folder)
    # Its hosts are those of this allocation.
    spec = recorded if SUBMITTED in os.environ else reload(recorded, ())
    resumed = resumption.Resumption(folder=folder, former=state, changes=())
    asked = functools.partial(_stop_order, folder, number)
    wanted = options.LaunchOptions(shows_output=shows_output, resumed=resumed, asked_to_stop=asked)
    code = launch(spec, wanted)
    if SUBMITTED not in os.environ and spec.slurm.requeue:
        cause = _interruption(folder.state())
        if cause is not None:
            _requeue(folder, spec, number, cause)
    return code


def _stop_order(folder: JobFolder, number: str) -> StopJob:
    """Return what a signal stands for: `distrun kill`, the end of the allocation, or scancel."""
    if (order := stop_order.left(folder)) is not None:
        return order
    if SUBMITTED in os.environ:
        cause = Cause(Code.POD_DELETED, name=os.uname().nodename)
    else:
        cause = step_end.of_job(number) or Cause(Code.SLURM_ALLOCATION_ENDS, name=number)
    return StopJob(cause, signal.SIGTERM, None, 128 + signal.SIGTERM)


def _interruption(state: JobState) -> Cause | None:
    """Return why Slurm has ended the job; None: a person or the program has."""
    if state.outcome is None or state.outcome.result is Result.SUCCEEDED:
        return None
    by_slurm = (  # at a preemption, Slurm says of steps that they are cancelled
        *(*SLURM_STOPS, Code.SLURM_NODE_FAILED, Code.SUPERVISOR_SIGNALLED),
        *(Code.AGENT_TERMINATED, Code.GUARD_DIED),  # Slurm's SIGTERM goes to a whole step
        Code.HOST_SILENT_TOO_LONG,  # a node that has no power: Slurm takes minutes to notice
    )
    return next((each for each in state.outcome.cause.chain() if each.code in by_slurm), None)


def _requeue(folder: JobFolder, spec: Spec, number: str, cause: Cause) -> None:
    """Put the job back into the queue, unless scancel has ended it, or note that Slurm does."""
    entry = batch_job.find([BatchJob(id=number)]).get(number)
    is_running = entry is not None and entry.state == "RUNNING"
    if stop_order.left(folder) is not None or not (is_running or batch_job.is_requeued(number)):
        return
    submission.note_requeue(folder, spec, number, cause)
    console.print_message(f"job {folder.job_id} goes back to the queue")
    if is_running:
        batch_job.requeue(number)
