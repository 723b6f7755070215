"""`distrun kill`."""

from __future__ import annotations

import contextlib
import itertools
import signal
from typing import TYPE_CHECKING

import click

from distrun.cli import console
from distrun.cli.options import completion_of, duration, job_argument
from distrun.errors import DistrunError, HostError, UsageError, WaitTimeoutError

if TYPE_CHECKING:
    from distrun.agent.protocol import Cause, Notice, Request
    from distrun.agent.protocol.channel import Channel
    from distrun.job.events import Event
    from distrun.job.folder import JobFolder, JobStore

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

    What is left of a job that was lost, or has ended, is ended, too, also on other hosts. The exit
    code is not 0 if it is not known that nothing is left.

    JOB is an id, a name (the newest job of that name) or a unique prefix. Without JOB, exactly
    one job must be running.

    \b
      distrun kill mnist
      distrun kill --grace 1m --signal INT night
      distrun kill --all
    """
    from distrun.job.folder import JobStore

    return _stop_all(_chosen(JobStore.default(), jobs, everything=everything), grace, signum)


def _chosen(store: JobStore, jobs: tuple[str, ...], *, everything: bool) -> list[JobFolder]:
    if jobs and everything:
        raise UsageError("name jobs or use --all, not both")
    if jobs:
        found = {folder.job_id: folder for folder in map(store.find, jobs)}
        return list(found.values())
    if everything:
        return [each for each in store.folders() if _may_run(each)]
    from distrun.cli.job_faults import tell_problem
    from distrun.job.job import read_jobs

    found_running = read_jobs(store.running())
    tell_problem(found_running)
    running = [job.folder for job in found_running if job.is_running]
    if len(running) == 1:
        return running
    if not running:
        raise UsageError("no job is running")
    names = ", ".join(folder.job_id for folder in running)
    raise UsageError(f"{len(running)} jobs are running: {names}", hint="name one, or use --all")


def _may_run(folder: JobFolder) -> bool:
    """Whether a job runs, waits in Slurm's queue, was lost, or has left something."""
    from distrun.job import leftovers

    if folder.is_elsewhere:
        from distrun.slurm import queued_job

        batch = folder.batch_job()
        return queued_job.look(folder).is_active or (batch is not None and not batch.id)
    state = folder.state()
    return (
        folder.supervisor_pid() is not None
        or not state.phase.is_final
        or bool(leftovers.places(folder, state))
    )


def _stop_all(folders: list[JobFolder], grace: float | None, signum: int) -> int:
    """Ask all jobs to stop, then wait for all: they end at the same time.

    Returns the highest exit code of those that have not ended, or of which that is not known; 0:
    all have ended. What keeps one job does not keep the others.
    """
    from distrun.cli.job_faults import tell_record_fault

    code = 0
    for folder in folders:
        tell_record_fault(folder)
    stops = [_Stop(folder, grace, signum) for folder in folders]
    for step in (_Stop.ask, _Stop.wait):
        for stop in stops:
            if stop.exit_code:
                continue
            try:
                step(stop)
            except DistrunError as error:
                console.print_error(error)
                stop.exit_code = error.exit_code
            except OSError as error:
                what = f"job {stop.folder.job_id}: {error.filename or ''}: {error.strerror}"
                console.print_error(HostError(what))
                stop.exit_code = HostError.exit_code
            code = max(code, stop.exit_code)
    return code


class _Stop:
    """One job that is stopped. Prints what its end waits for, and which logs are incomplete.

    Create it before the job is asked to stop.
    """

    def __init__(self, folder: JobFolder, grace: float | None, signum: int) -> None:
        from distrun.job import traces

        state = folder.state()
        self.folder, self._job_id = folder, folder.job_id
        self.exit_code = 0
        """Why it is not known that the job has ended; 0: nothing speaks against it."""
        self._grace, self._signum = grace, signum
        self._longest = state.timeouts.grace if grace is None else grace
        self._channel: Channel[Notice, Request] | None = None
        self._is_queued = folder.is_elsewhere
        self._had_ended = state.phase.is_final
        # The folder may be gone when the supervisor has ended.
        self._traces = traces.here(folder, state)
        self._has_answered = False
        """Whether the supervisor has answered the last request to watch."""
        self._lease = state.timeouts.link
        # On the second request, the supervisor no longer waits for hosts without a link timeout.
        self._waits_for_hosts = state.outcome is None or self._lease is not None
        self._printed: set[str] = set()
        for host in state.hosts.values():
            if host.link_lost is not None:
                self._print_lost(host.name)

    def ask(self) -> None:
        """Ask the supervisor, if it lives."""
        from distrun.job import control

        if not self._is_queued:
            control.resume_supervisor(self.folder)
            self._channel = control.connect(self.folder)
        if self._channel is not None:
            control.request_stop(
                self._channel, "distrun kill", grace=self._grace, signum=self._signum
            )

    def wait(self) -> None:
        """Return once nothing of the job is left, or set the exit code if that is not known."""
        from distrun.job import control

        if self._is_queued:
            _stop_queued(self.folder, self._grace, self._signum)
            return
        if self._channel is not None:
            with contextlib.closing(self._channel):
                self._wait_for_end(self._channel)
            control.require_supervisor_ended(self.folder)
            _require_ended(self.folder)
        self.exit_code = self._verify()

    def _wait_for_end(self, channel: Channel[Notice, Request]) -> None:
        """Wait for the job's end, and show what it waits for.

        Raises:
            InternalError: the supervisor lives, and does not answer after the time of a stop.
        """
        from distrun.agent.protocol import KILL_GRACE, Watch
        from distrun.job import control

        def on_answer() -> None:
            self._has_answered = True

        first = (_QUIET_SECONDS, self._longest + KILL_GRACE + _ANSWER_SECONDS)
        for number, seconds in enumerate(itertools.chain(first, itertools.repeat(_ANSWER_SECONDS))):
            with contextlib.suppress(WaitTimeoutError):
                control.wait_for_end(channel, self._job_id, seconds, self._on_event, on_answer)
                return
            if number and not self._has_answered:
                raise control.unanswered(self.folder)
            self._print_waiting()
            if number:
                self._has_answered = False
                channel.send(Watch())

    def _verify(self) -> int:
        """End what a supervisor that has ended has left. Returns an exit code."""
        from distrun.job import control, leftovers

        folder, job = self.folder, f"job {self.folder.job_id}"
        if not folder.path.exists():
            leftovers.end_here(self._traces)
            raise control.removed_error(folder)
        is_by_supervisor = self._channel is not None and folder.state().phase.is_final
        found = leftovers.end(
            folder, "distrun kill", self._print_delay, has_just_ended=is_by_supervisor
        )
        count = f"ended {found.count} processes of the job" if found.count else ""
        if self._channel is None and self._had_ended:
            said = f"{job} had already {found.state.phase.value}"
        elif is_by_supervisor:
            said = f"{job} has ended"
        else:
            how = "had died" if self._channel is None else "died"
            said = f"the supervisor of {job} {how}"
            count = f"ended {found.count} processes of the job"
        where = f"nothing is left on {', '.join(found.hosts)}" if found.hosts else ""
        for error in found.errors:
            console.print_error(error)
        if found.own:
            pids = " ".join(map(str, found.own))
            console.print_message(f"{job}: processes of distrun, which run no task, remain: {pids}")
        if found.errors and is_by_supervisor:
            said = f"{job} has ended on the other hosts"
        console.print_message("; ".join(filter(None, (said, count, where))))
        if is_by_supervisor:
            _print_verdict(folder)
        return max((error.exit_code for error in found.errors), default=0)

    def _print_delay(self, host: str, cause: Cause) -> None:
        """Print why what was left on a host has not been ended yet."""
        from distrun.words.causes import cause_text

        console.print_message(f"job {self._job_id}: waiting for {host}: {cause_text(cause)}")

    def _print_waiting(self) -> None:
        """Print what the job's end waits for, if that has not been printed."""
        from distrun.words.formats import format_names

        state = self.folder.state()
        names = format_names(task.name for task in state.tasks.values() if not task.has_ended)
        what = f"{names} to end (grace: {self._longest:g} s)"
        if not names:
            present = [host for host in state.hosts.values() if host.token and host.lost is None]
            hosts = format_names(host.name for host in present)
            what = "its agent to end"
            if hosts:
                what = f"the agents on {hosts} to send the rest of the logs and to end"
                if not state.killing:
                    what += f"; to leave the logs there: distrun kill {self._job_id}"
        if not self._has_answered:
            from distrun.job.control import supervisor_place

            place = supervisor_place(self.folder.supervisor_pid())
            what = f"its supervisor ({place}), which has not answered yet"
        line = f"job {self._job_id}: waiting for {what}"
        if line not in self._printed:
            self._printed.add(line)
            console.print_message(line)

    def _on_event(self, event: Event) -> None:
        from distrun.job import events
        from distrun.words.events import event_text

        if isinstance(event, events.LinkLost):
            self._print_lost(event.host)
        elif isinstance(event, events.LogsIncomplete):
            console.print_message(event_text(event) or "")

    def _print_lost(self, host: str) -> None:
        if host in self._printed or not self._waits_for_hosts:
            return
        self._printed.add(host)
        if self._lease is None:
            how = f"to stop waiting for it: distrun kill {self._job_id}"
        else:
            how = f"its tasks end by themselves after {self._lease:g} s (timeouts.link)"
        console.print_message(f"{host} cannot be reached; {how}")


def _require_ended(folder: JobFolder) -> None:
    """Check that no process of an ended job was given up.

    Raises:
        HostError: some do not die.
    """
    from distrun.agent.protocol import Code
    from distrun.words.causes import cause_text

    for host in folder.state().hosts.values():
        if host.lost is not None and host.lost.code is Code.PROCESSES_NOT_ENDED:
            words = f"job {folder.job_id} is not all ended on {host.name}: {cause_text(host.lost)}"
            raise HostError(words, hint=f"to end them later: distrun kill {folder.job_id}")


def _stop_queued(folder: JobFolder, grace: float | None, signum: int) -> None:
    """Stop a job in Slurm, which waits or runs on another machine."""
    from distrun.slurm import queued_job

    job_id, found = folder.job_id, queued_job.look(folder, asks_slurm=True)
    batch = folder.batch_job()
    if batch is not None and not batch.id:
        raise HostError(
            f"it is not known whether Slurm has queued job {job_id}: its `distrun submit` died",
            hint="look for it with `squeue --me`, and end it with scancel",
        )
    if found.is_over and not found.state.phase.is_final:
        raise UsageError(f"job {job_id} is lost: Slurm does not know it any more")
    if found.is_over:
        console.print_message(f"job {job_id} had already {found.state.phase.value}")
        return
    order = queued_job.StopOrder(command="distrun kill", signal=signum, grace=grace)

    def on_slow(what: str) -> None:
        console.print_message(f"job {job_id}: waiting for {what}")

    if found.problem is not None and found.state.phase.is_final:
        raise found.problem  # by its record, it has ended; a further one may wait in the queue
    queued_job.stop(folder, order, on_slow)
    console.print_message(f"job {job_id} has ended")
    _print_verdict(folder)


def _print_verdict(folder: JobFolder) -> None:
    """Print where the tasks of a job were that did nothing when it was stopped."""
    from distrun.job.events import Result
    from distrun.words.verdicts import verdict_lines

    outcome = folder.state().outcome
    if outcome is not None and outcome.result is Result.STOPPED and outcome.verdict is not None:
        console.print_lines(verdict_lines(outcome.verdict))
