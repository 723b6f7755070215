"""A job that `kill` stops: what its end waits for, and what is left of it."""

from __future__ import annotations

import contextlib
import itertools

from distrun.agent.protocol import KILL_GRACE, Cause, Code, Notice, Request, Watch
from distrun.agent.protocol.channel import Channel
from distrun.cli import console
from distrun.cli.job_faults import tell_record_fault
from distrun.errors import DistrunError, HostError, UsageError, WaitTimeoutError
from distrun.job import control, events, leftovers, queued_job, traces
from distrun.job.control import supervisor_place
from distrun.job.events import Event, Result
from distrun.job.folder import JobFolder
from distrun.words.causes import cause_text
from distrun.words.events import event_text
from distrun.words.formats import format_names
from distrun.words.verdicts import verdict_lines

_QUIET_SECONDS = 3.0
"""After this time, `kill` shows what it waits for."""
_ANSWER_SECONDS = 10.0
"""How long a supervisor may take to answer: a busy machine may delay it by seconds."""


def stop_all(folders: list[JobFolder], grace: float | None, signum: int) -> int:
    """Ask all jobs to stop, then wait for all: they end at the same time.

    Returns the highest exit code of those that have not ended, or of which that is not known; 0:
    all have ended. What keeps one job does not keep the others.
    """
    code = 0
    for folder in folders:
        tell_record_fault(folder)
    stops = [StoppedJob(folder, grace, signum) for folder in folders]
    for step in (StoppedJob.ask, StoppedJob.wait):
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


class StoppedJob:
    """One job that is stopped. Prints what its end waits for, and which logs are incomplete.

    Create it before the job is asked to stop.
    """

    def __init__(self, folder: JobFolder, grace: float | None, signum: int) -> None:
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
        if not self._is_queued:
            control.resume_supervisor(self.folder)
            self._channel = control.connect(self.folder)
        if self._channel is not None:
            control.request_stop(
                self._channel, "distrun kill", grace=self._grace, signum=self._signum
            )

    def wait(self) -> None:
        """Return once nothing of the job is left, or set the exit code if that is not known."""
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
        console.print_message(f"job {self._job_id}: waiting for {host}: {cause_text(cause)}")

    def _print_waiting(self) -> None:
        """Print what the job's end waits for, if that has not been printed."""
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
            place = supervisor_place(self.folder.supervisor_pid())
            what = f"its supervisor ({place}), which has not answered yet"
        line = f"job {self._job_id}: waiting for {what}"
        if line not in self._printed:
            self._printed.add(line)
            console.print_message(line)

    def _on_event(self, event: Event) -> None:
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
    for host in folder.state().hosts.values():
        if host.lost is not None and host.lost.code is Code.PROCESSES_NOT_ENDED:
            words = f"job {folder.job_id} is not all ended on {host.name}: {cause_text(host.lost)}"
            raise HostError(words, hint=f"to end them later: distrun kill {folder.job_id}")


def _stop_queued(folder: JobFolder, grace: float | None, signum: int) -> None:
    """Stop a submitted job, which waits or runs on another machine."""
    job_id, found = folder.job_id, queued_job.look(folder, asks=True)
    batch = folder.batch_job()
    if batch is not None and not batch.id:
        raise HostError(
            f"it is not known whether Slurm has queued job {job_id}: its `distrun submit` died",
            hint="look for it with `squeue --me`, and end it with scancel",
        )
    if found.is_over and not found.state.phase.is_final:
        raise UsageError(f"job {job_id} is lost: {found.scheduler} does not know it any more")
    order = queued_job.StopOrder(command="distrun kill", signal=signum, grace=grace)
    if found.is_over:
        if found.entry is not None:  # pods of its tasks may be left
            queued_job.stop(folder, order)
        console.print_message(f"job {job_id} had already {found.state.phase.value}")
        return

    def on_slow(what: str) -> None:
        console.print_message(f"job {job_id}: waiting for {what}")

    if found.problem is not None and found.state.phase.is_final:
        raise found.problem  # by its record, it has ended; a further one may wait in the queue
    queued_job.stop(folder, order, on_slow)
    console.print_message(f"job {job_id} has ended")
    _print_verdict(folder)


def _print_verdict(folder: JobFolder) -> None:
    """Print where the tasks of a job were that did nothing when it was stopped."""
    outcome = folder.state().outcome
    if outcome is not None and outcome.result is Result.STOPPED and outcome.verdict is not None:
        console.print_lines(verdict_lines(outcome.verdict))
