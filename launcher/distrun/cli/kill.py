"""`distrun kill`."""

from __future__ import annotations

import contextlib
import itertools
import signal
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import completion_of, duration, job_argument
from distrun.errors import DistrunError, HostError, InternalError, UsageError, WaitTimeoutError

if TYPE_CHECKING:
    from distrun.agent.protocol import Notice, Request
    from distrun.agent.protocol.channel import Channel
    from distrun.events import Event
    from distrun.jobstore import JobFolder, JobStore

_QUIET_SECONDS = 3.0
"""After this time, `kill` shows what it waits for."""
_ANSWER_SECONDS = 10.0
"""How long a supervisor may take to answer: a busy machine may delay it by seconds."""


def signal_number(value: str) -> int:
    """Convert `TERM`, `SIGTERM` or `15` to the number."""
    text = value.upper()
    try:
        if text.isdigit():
            return int(signal.Signals(int(text)))
        return int(signal.Signals[text if text.startswith("SIG") else f"SIG{text}"])
    except (KeyError, ValueError):
        raise click.BadParameter(
            f"{value!r} is no signal: write TERM, INT, KILL or a number"
        ) from None


@click.command("kill")
@job_argument(many=True, running=True)
@click.option("--all", "everything", is_flag=True, help="Stop all running jobs.")
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

    JOB is an id, a name (the newest job of that name) or a unique prefix. Without JOB, exactly
    one job must be running.

    \b
      distrun kill mnist
      distrun kill --grace 1m --signal INT night
      distrun kill --all
    """
    from distrun.jobstore import JobStore

    _stop_all(_chosen(JobStore.default(), jobs, everything=everything), grace, signum)
    return 0


def _chosen(store: JobStore, jobs: tuple[str, ...], *, everything: bool) -> list[JobFolder]:
    if jobs and everything:
        raise UsageError("name jobs or use --all, not both")
    if jobs:
        found = {folder.job_id: folder for folder in map(store.find, jobs)}
        return list(found.values())
    from distrun.cli.job_view import job_summaries

    running = [job.folder for job in job_summaries(store.running()) if job.is_running]
    if everything or len(running) == 1:
        return running
    if not running:
        raise UsageError("no job is running")
    names = ", ".join(folder.job_id for folder in running)
    raise UsageError(f"{len(running)} jobs are running: {names}", hint="name one, or use --all")


def _stop_all(folders: list[JobFolder], grace: float | None, signum: int) -> None:
    """Ask all jobs to stop, then wait for all: they end at the same time."""
    from distrun import control

    waits = []
    queued = []
    failures: list[DistrunError] = []
    for folder in folders:
        if folder.is_elsewhere:
            queued.append(folder)
            continue
        control.resume_supervisor(folder)
        try:
            channel = control.connect(folder)
        except InternalError as error:
            failures.append(error)
            continue
        if channel is None:
            _stop_without_supervisor(folder)
            continue
        view = _WaitView(folder, grace)
        control.request_stop(channel, "distrun kill", grace=grace, signum=signum)
        waits.append((channel, view))
    for channel, view in waits:
        with contextlib.closing(channel):
            try:
                _wait_for_end(channel, view)
                _require_ended(view.folder)
                console.print_message(f"job {view.folder.job_id} has ended")
                _print_verdict(view.folder)
            except (HostError, InternalError) as error:
                failures.append(error)
    for folder in queued:
        _stop_queued(folder, grace, signum)
    for each in failures[:-1]:
        console.print_message(f"{each.message}; {each.hint}")
    if failures:
        raise failures[-1]


def _require_ended(folder: JobFolder) -> None:
    """Check that no process of an ended job was given up.

    Raises:
        HostError: some do not die.
    """
    from distrun.agent.protocol import Code
    from distrun.cli.cause_text import cause_text

    for host in folder.state().hosts.values():
        if host.lost is not None and host.lost.code is Code.PROCESSES_NOT_ENDED:
            words = f"job {folder.job_id} is not all ended on {host.name}: {cause_text(host.lost)}"
            raise HostError(words, hint=f"to end them later: distrun kill {folder.job_id}")


def _stop_queued(folder: JobFolder, grace: float | None, signum: int) -> None:
    """Stop a job in Slurm, which waits or runs on another machine."""
    from distrun.slurm import queued_job

    job_id, found = folder.job_id, queued_job.look(folder)
    if found.is_over and not found.state.phase.is_final:
        raise UsageError(f"job {job_id} is lost: Slurm does not know it any more")
    if found.is_over:
        console.print_message(f"job {job_id} had already {found.state.phase.value}")
        return
    order = queued_job.StopOrder(command="distrun kill", signal=signum, grace=grace)

    def on_slow(what: str) -> None:
        console.print_message(f"job {job_id}: waiting for {what}")

    queued_job.stop(folder, order, on_slow)
    console.print_message(f"job {job_id} has ended")
    _print_verdict(folder)


def _print_verdict(folder: JobFolder) -> None:
    """Print where the tasks of a job were that did nothing when it was stopped."""
    from distrun.cli.verdict_text import verdict_lines
    from distrun.events import Result

    outcome = folder.state().outcome
    if outcome is not None and outcome.result is Result.STOPPED and outcome.verdict is not None:
        console.print_lines(verdict_lines(outcome.verdict))


def _wait_for_end(channel: Channel[Notice, Request], view: _WaitView) -> None:
    """Wait for a job's end, and show what it waits for.

    Raises:
        InternalError: the supervisor lives, and does not answer after the time that a stop takes.
    """
    from distrun import control
    from distrun.agent.protocol import KILL_GRACE, Watch

    stop_seconds = view.grace + KILL_GRACE + _ANSWER_SECONDS
    patience = itertools.chain((_QUIET_SECONDS, stop_seconds), itertools.repeat(_ANSWER_SECONDS))
    for number, seconds in enumerate(patience):
        job_id = view.folder.job_id
        with contextlib.suppress(WaitTimeoutError):
            control.wait_for_end(channel, job_id, seconds, view.on_event, view.on_answer)
            return
        if number and not view.has_answered:
            raise control.unanswered(view.folder)
        view.print_waiting()
        if number:
            view.has_answered = False
            channel.send(Watch())


class _WaitView:
    """Prints what the end of a job waits for, and which logs are incomplete.

    Create it before the job is asked to stop.
    """

    def __init__(self, folder: JobFolder, grace: float | None) -> None:
        state = folder.state()
        self.folder = folder
        self.grace = state.timeouts.grace if grace is None else grace
        self.has_answered = False
        """Whether the supervisor has answered the last request to watch."""
        self._job_id = folder.job_id
        self._lease = state.timeouts.link
        # On the second request, the supervisor no longer waits for hosts without a link timeout.
        self._waits = state.outcome is None or self._lease is not None
        self._printed: set[str] = set()
        for host in state.hosts.values():
            if host.link_lost is not None:
                self._print_lost(host.name)

    def on_answer(self) -> None:
        self.has_answered = True

    def print_waiting(self) -> None:
        """Print what the job's end waits for, if that has not been printed."""
        from distrun.cli.text_format import format_names

        state = self.folder.state()
        names = format_names(task.name for task in state.tasks.values() if not task.has_ended)
        what = f"{names} to end (grace: {self.grace:g} s)"
        if not names:
            present = [host for host in state.hosts.values() if host.token and host.lost is None]
            hosts = format_names(host.name for host in present)
            what = "its agent to end"
            if hosts:
                what = f"the agents on {hosts} to send the rest of the logs and to end"
                if not state.killing:
                    what += f"; to leave the logs there: distrun kill {self._job_id}"
        if not self.has_answered:
            from distrun.control import supervisor_place

            place = supervisor_place(self.folder.supervisor_pid())
            what = f"its supervisor ({place}), which has not answered yet"
        line = f"job {self._job_id}: waiting for {what}"
        if line not in self._printed:
            self._printed.add(line)
            console.print_message(line)

    def on_event(self, event: Event) -> None:
        from distrun import events
        from distrun.cli.event_text import event_text

        if isinstance(event, events.LinkLost):
            self._print_lost(event.host)
        elif isinstance(event, events.LogsIncomplete):
            console.print_message(event_text(event) or "")

    def _print_lost(self, host: str) -> None:
        if host in self._printed or not self._waits:
            return
        self._printed.add(host)
        if self._lease is None:
            how = f"to stop waiting for it: distrun kill {self._job_id}"
        else:
            how = f"its tasks end by themselves after {self._lease:g} s (timeouts.link)"
        console.print_message(f"{host} cannot be reached; {how}")


def _stop_without_supervisor(folder: JobFolder) -> None:
    from distrun import leftovers

    state = folder.state()
    if state.phase.is_final:
        console.print_message(f"job {folder.job_id} had already {state.phase.value}")
        return
    count = leftovers.end_here(folder, state)
    console.print_message(
        f"the supervisor of job {folder.job_id} had died; ended {count} processes of the job"
    )
