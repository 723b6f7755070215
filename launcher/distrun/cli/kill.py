"""`distrun kill`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.job_faults import tell_record_fault
from distrun.cli.options import completion_of, duration, job_argument
from distrun.errors import DistrunError, HostError, UsageError

if TYPE_CHECKING:
    from distrun.agent.protocol import StopJob
    from distrun.job.folder import JobFolder, JobStore


def signal_number(value: str) -> int:
    """Convert `TERM`, `SIGTERM` or `15` to the number."""
    text = value.upper()
    try:
        if text.isdigit():
            return int(signal.Signals(int(text)))
        return int(signal.Signals[text if text.startswith("SIG") else f"SIG{text}"])
    except (KeyError, ValueError):
        raise click.BadParameter(
            f"{value!r} is not a signal: write TERM, INT, KILL or a number"
        ) from None


@click.command("kill")
@job_argument(many=True, only="running")
@click.option("--all", "everything", is_flag=True, help="Stop all jobs, lost and queued ones, too.")
@click.option(
    "--grace",
    type=duration,
    metavar="D",
    help="Time between the signal and SIGKILL. Default: timeouts.grace of the spec.",
)
@click.option(
    "--signal",
    "signum",
    type=signal_number,
    metavar="SIGNAL",
    shell_complete=completion_of("signals"),
    default="TERM",
    help="The signal to send first. Default: TERM.",
)
def command(jobs: tuple[str, ...], everything: bool, grace: float | None, signum: int) -> int:
    """Stop jobs, and return when all their processes have ended.

    It also ends what is left of a job that was lost or has ended, on all its hosts. If something
    may still be left, the exit code is not 0. To send a signal to a task and stop nothing, use your
    shell's `kill` on its host: `distrun status` shows the PID.

    JOB is an id, a name (the newest job of that name) or a unique prefix. Without JOB, exactly
    one job must be running.

    \b
      distrun kill mnist
      distrun kill --grace 1m --signal INT night
      distrun kill --all
    """
    from distrun.job.folder import JobStore
    from distrun.job.stop_order import order_of

    order = order_of("distrun kill", signum, grace)
    return _stop_all(_chosen(JobStore.default(), jobs, everything=everything), order)


def _stop_all(folders: list[JobFolder], order: StopJob) -> int:
    """Ask all jobs to stop, then wait for all: they end at the same time.

    Returns the highest exit code of those that have not ended, or of which that is not known; 0:
    all have ended. What keeps one job does not keep the others.
    """
    from distrun.job.events import Result
    from distrun.job.stopping import StoppedJob
    from distrun.words.causes import advise_about, error_words
    from distrun.words.verdicts import verdict_lines

    codes = [0]

    def report(error: DistrunError) -> None:
        console.print_error(error)
        codes.append(error.exit_code)

    for folder in folders:
        tell_record_fault(folder)
    say = console.print_message
    stops = [StoppedJob(each, order, say=say, on_error=report) for each in folders]
    for step in (StoppedJob.ask, StoppedJob.wait):
        for stop in [*stops]:
            advise_about(stop.folder.job_id)
            try:
                step(stop)
            except DistrunError as error:
                stops.remove(stop)
                report(error)
            except OSError as error:
                stops.remove(stop)
                report(HostError(f"job {stop.folder.job_id}: {error_words(error)}"))
            outcome = stop.folder.state().outcome if stop.has_ended_now else None
            if outcome is not None and outcome.verdict and outcome.result is Result.STOPPED:
                console.print_lines(verdict_lines(outcome.verdict))  # where idle tasks were
    return max(codes)


def _chosen(store: JobStore, jobs: tuple[str, ...], *, everything: bool) -> list[JobFolder]:
    if jobs and everything:
        raise UsageError("name jobs or use --all, not both")
    from distrun.job.queued_job import running as running_jobs

    if jobs:
        found = {folder.job_id: folder for folder in map(store.find, jobs)}
        for each in running_jobs(store, jobs):
            if each.job_id not in found:
                console.print_message(f"{each.job_id} is running, too, and is not stopped")
        return list(found.values())
    if everything:
        return _all(store)
    running = running_jobs(store)
    if not running:
        raise UsageError("no job is running")
    names = ", ".join(folder.job_id for folder in running)
    if len(running) > 1:
        raise UsageError(f"{len(running)} jobs are running: {names}", hint="name one, or use --all")
    if not _is_own(running[0]):
        what = f"the running job was submitted from another machine: {names}"
        raise UsageError(what, hint=f"to stop it: distrun kill {names}")
    return running


def _all(store: JobStore) -> list[JobFolder]:
    active = list(filter(_may_run, store.folders()))
    others = [each.job_id for each in active if not _is_own(each)]
    if others:
        what = f"submitted from another machine, and not stopped: {', '.join(others)}"
        console.print_message(f"{what}; to stop them: distrun kill {' '.join(others)}")
    return list(filter(_is_own, active))


def _is_own(folder: JobFolder) -> bool:
    """Whether a job was submitted from here. Who only lists those of others need not mean them."""
    batch = folder.batch_job()
    return batch is None or batch.is_own


def _may_run(folder: JobFolder) -> bool:
    """Whether a job runs, waits in Slurm's queue, was lost, or has left something."""
    from distrun.job import leftovers, queued_job

    if folder.is_elsewhere:
        batch = folder.batch_job()
        return queued_job.look(folder).is_active or (batch is not None and not batch.id)
    state = folder.state()
    return folder.path.exists() and (  # else `clean` has just removed it: it had ended
        folder.supervisor_pid() is not None
        or not state.phase.is_final
        or bool(leftovers.places(folder, state))
    )
