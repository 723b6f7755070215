"""A submitted job, seen from another machine than its supervisor's.

It is seen by its record, and by what its scheduler says: Slurm or Kubernetes. Nothing of the
record's locks and sockets is used: a shared file system, or a copy, has only its files.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Protocol

from distrun import lifecycle
from distrun.agent.linux import syscalls
from distrun.agent.linux.regular import read_end
from distrun.agent.protocol import KILL_GRACE, Cause, Code, Notice, Request, StopJob
from distrun.agent.protocol.channel import Channel, ProtocolError
from distrun.codec import from_json
from distrun.errors import EXIT_KILLED, HostError, UsageError
from distrun.frozen import Frozen, replace
from distrun.job import held_package, relay, stop_order
from distrun.job.events import JobEnded, JobQueued, Origin, Outcome, Result
from distrun.job.folder import BatchJob, JobFolder, JobStore
from distrun.job.record import EventLog
from distrun.job.scheduler import MissingCommandError, QueueEntry, RefusedError, SchedulerError
from distrun.lifecycle import JobPhase, JobState
from distrun.spec.model import Spec

_POLL_SECONDS = 0.5
"""How often the record is looked at. That costs Slurm nothing, and Kubernetes little."""
_ASK_SECONDS = (1.0, 30.0)
"""How often a scheduler is asked: at first, and after two minutes, as `sbatch --wait` does."""
_COPY_SECONDS = 10.0
"""How long the files of one job may take, where many are looked at."""
_PATIENCE, _LESS_PATIENCE = 300.0, {RefusedError: 60.0, MissingCommandError: 0.0}
"""How long a scheduler may not answer before `wait` gives up."""
_CONNECT_SECONDS = 30.0
"""How long it may take to reach a supervisor: a busy slurmctld lets srun wait."""
_DISCONNECT_SECONDS = 5.0
_ENDED_BY_SIGNAL = 143
_END_BYTES, _LONGEST_LINE = 4096, 300
_CANCEL_SECONDS = 60.0
"""How long a job may take to end once it is cancelled, until `kill` says that it has not."""
_REGISTER_SECONDS = 10.0
"""How much longer than the grace a job may take to write that it was stopped."""
_NO_LOG = "do the nodes have the folder of its record? Else set DISTRUN_HOME to one that they share"
_KEPT = "; its supervisor's pod keeps its record for 24 h, for the machine that submitted it"


class Scheduler(Protocol):
    """What holds submitted jobs. Each is a module; all functions raise SchedulerError."""

    NAME: str
    SHOW: str
    END: str
    """The commands that show a job, and that end one, without its id."""

    def find(self, batches: Iterable[BatchJob]) -> dict[str, QueueEntry]:
        """Return what it says of jobs, by its ids, without those that it no longer knows."""

    def refresh(self, folder: JobFolder, batch: BatchJob, seconds: float | None = None) -> bool:
        """Bring here what is new in the files of a job, or what comes in so many seconds.

        Return False if nothing could come.
        """

    def python_beside(self, folder: JobFolder, batch: BatchJob, code: str) -> list[str]:
        """Return a command that runs a program in Python where a job's supervisor is.

        The program's argument is the job's folder there.
        """

    def signal(self, folder: JobFolder, batch: BatchJob) -> None:
        """Have a running job stopped as `stop_file` says."""

    def cancel(self, batch: BatchJob, *, only_pending: bool = False) -> None:
        """End a job. `only_pending`: not if it has started."""


def scheduler_of(batch: BatchJob | None) -> Scheduler:
    if batch is not None and batch.namespace:
        from distrun.kubernetes import batch_job as kubernetes

        return kubernetes
    from distrun.slurm import batch_job as slurm

    return slurm


def refresh(folder: JobFolder, seconds: float | None = None) -> bool:
    """Bring here what is new in the files of a job, if it is submitted. Return False if that fails.

    `seconds`: after which the rest is left to the next call.
    """
    batch = folder.batch_job() if folder.is_elsewhere else None
    with contextlib.suppress(SchedulerError):  # whatever looks at the job says so
        return batch is None or scheduler_of(batch).refresh(folder, batch, seconds)
    return False


class QueuedJob(Frozen, kw_only=True):
    """A job by its record, and what its scheduler says of it.

    Attributes:
        state: by the record; with its end, if the scheduler knows of one that the record lacks.
        entry: None: the scheduler does not know the job, was not asked, or did not answer.
        is_over: whether nothing more will happen to it.
        problem: why the scheduler did not answer.
    """

    state: JobState
    entry: QueueEntry | None = None
    scheduler: str = ""
    is_over: bool = False
    problem: SchedulerError | None = None

    @property
    def is_pending(self) -> bool:
        return self.entry is not None and self.entry.is_pending

    @property
    def has_not_begun(self) -> bool:
        """Whether it waits, and has no supervisor: Kueue may suspend the pods of a running job."""
        is_suspended = self.entry is not None and self.entry.state == "suspended"
        return self.is_pending and (not is_suspended or self.state.phase is JobPhase.PENDING)

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs; also if that is not known and its record has no end."""
        if self.is_over:
            return False
        return self.problem is not None or (self.entry is not None and self.entry.is_active)


def find(query: str | None) -> JobFolder:
    """Return the job that :meth:`.JobStore.find` finds.

    None stands for the only job that runs, or waits; if there are none or several, for the newest.
    """
    store = JobStore.default()
    if query is not None:
        return store.find(query)
    newest, active = store.newest(), store.running()
    if any(each.job_id != newest.job_id for each in active):  # else it is that one, in any case
        active = running(store)
    return active[0] if len(active) == 1 else newest


def running(store: JobStore, names: Sequence[str] = ()) -> list[JobFolder]:
    """Return the jobs that run, or wait: of :meth:`.JobStore.running`, not those that have ended.

    A supervisor lives for a moment longer than its job, and a scheduler may have ended a submitted
    job before it could write that. `names`: only those of these names.
    """
    named = (each for each in store.running() if not names or each.name() in names)
    folders = [each for each in named if not each.state().phase.is_final]
    queued = look_at(each for each in folders if each.is_elsewhere)
    ended = {name for name, each in queued.items() if not each.is_active}
    return [each for each in folders if each.job_id not in ended]


def look(folder: JobFolder, *, asks: bool = False) -> QueuedJob:
    """Return a submitted job as it is now: see :func:`look_at`."""
    return look_at([folder], asks=asks)[folder.job_id]


def look_at(folders: Iterable[JobFolder], *, asks: bool = False) -> dict[str, QueuedJob]:
    """Return submitted jobs as they are now, by their ids. Each scheduler is asked once for all.

    `asks`: even for a job whose record has the end: another one may be in the queue.
    """
    found: dict[str, QueuedJob] = {}
    seconds = None if asks else _COPY_SECONDS
    asked: dict[str, dict[JobFolder, BatchJob]] = {}
    for folder in folders:
        state, batch = folder.state(), folder.batch_job()
        if not asks and batch is not None and _has_ended(state, may_continue=batch.requeues):
            refresh(folder, seconds)
            found[folder.job_id] = QueuedJob(state=folder.state(), is_over=True)
        elif batch is None or batch.is_released:
            name = scheduler_of(batch).NAME
            found[folder.job_id] = QueuedJob(state=state, scheduler=name, is_over=True)
        else:
            asked.setdefault(f"{batch.context} {batch.namespace}", {})[folder] = batch
    for of_one in asked.values():
        scheduler = scheduler_of(next(iter(of_one.values())))
        entries: dict[str, QueueEntry] = {}
        problem = None
        try:
            entries = scheduler.find(of_one.values())
        except SchedulerError as error:
            problem = error
        for folder, batch in of_one.items():
            # Read again: what the scheduler says is newer than what was read before.
            if problem is None:
                refresh(folder, seconds)
            judged = _judge(folder, batch, entries.get(batch.id), problem)
            found[folder.job_id] = replace(judged, scheduler=scheduler.NAME)
    return found


def _judge(
    folder: JobFolder, batch: BatchJob, entry: QueueEntry | None, problem: SchedulerError | None
) -> QueuedJob:
    state, now = folder.state(), folder.batch_job() or batch
    is_gone = entry is None and problem is None and not folder.is_locked
    if is_gone and batch.namespace:  # nothing more will come of it
        folder.note_batch_job(now := replace(now, is_released=True))
    if now.is_released:
        return QueuedJob(state=state, is_over=True)
    if problem is not None or (entry is not None and entry.is_active):
        return QueuedJob(state=state, entry=entry, problem=problem)
    if state.phase.is_final:
        return QueuedJob(state=state, entry=entry, is_over=True)
    if is_gone and batch.id and not batch.runs_in and not folder.batch_log.exists():
        why = Cause(Code.SLURM_CANCELLED, name=batch.id)  # before it began
        entry = QueueEntry(id=batch.id, scheduler="", state="", is_active=False, cause=why)
    if entry is None:  # it is being submitted, or the scheduler has forgotten it
        return QueuedJob(state=state, is_over=not folder.is_locked)
    ended = JobEnded(at=entry.ends_at or time.time(), outcome=_outcome(entry, folder))
    return QueuedJob(state=lifecycle.step(state, ended)[0], entry=entry, is_over=True)


def _has_ended(state: JobState, *, may_continue: bool) -> bool:
    """Whether the end in the record is the last one, without asking the scheduler."""
    if not state.phase.is_final or state.outcome is None:
        return False
    is_stopped = state.outcome.result is not Result.SUCCEEDED
    return not (may_continue and is_stopped and state.outcome.exit_code != EXIT_KILLED)


def _outcome(entry: QueueEntry, folder: JobFolder) -> Outcome:
    """Return how a job ended that has not written it."""
    printed = read_end(str(folder.batch_log), _END_BYTES).decode("utf-8", "replace").split("\n")
    last = [line.strip() for line in printed if line.strip()][-1:]
    cause = entry.cause or Cause(Code.SLURM_JOB_ENDED, name=entry.id)
    if cause.code is Code.SLURM_JOB_ENDED and not folder.batch_log.exists():
        last = [_NO_LOG]
    cause = cause._replace(
        path=str(folder.path / folder.batch_log.name),
        within=tuple(Cause(Code.UNCODED, text=line[-_LONGEST_LINE:]) for line in last),
    )
    if cause.code is Code.SLURM_CANCELLED:
        return Outcome.stopped(_ENDED_BY_SIGNAL, cause)
    code = HostError.exit_code
    return Outcome(result=Result.FAILED, exit_code=code, origin=Origin.DISTRUN, cause=cause)


class QueuedJobWatch:
    """Follows a submitted job from another machine, by looking again and again.

    As :class:`.control.SupervisorWatch`, which follows a job of this machine.
    """

    polls, descriptor = True, None

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._asked_at = -math.inf
        self._began_at = time.monotonic()
        self._answered_at = self._began_at
        self._changed_at = 0.0
        self.job = QueuedJob(state=folder.state())

    def has_ended(self) -> bool:
        """Whether nothing more will happen to the job. The scheduler is not asked each time.

        Raises:
            SchedulerError: it has not answered for minutes, or its command is not installed here.
        """
        refresh(self._folder)
        now, changed = time.monotonic(), self._folder.last_change()
        first, later = _ASK_SECONDS
        is_due = now - self._asked_at >= min(later, first + (now - self._began_at) / 4)
        if not is_due and changed != self._changed_at:
            # An end in the record needs no answer, unless the job may be queued again.
            state, batch = self._folder.state(), self._folder.batch_job()
            is_due = batch is not None and _has_ended(state, may_continue=batch.requeues)
        self._changed_at = changed
        if not is_due:
            return self.job.is_over
        self._asked_at = now
        self.job = look(self._folder)
        if self.job.problem is None:
            self._answered_at = now
        elif now - self._answered_at >= _LESS_PATIENCE.get(type(self.job.problem), _PATIENCE):
            raise self.job.problem
        return self.job.is_over

    def wait(self, timeout: float | None = None) -> None:
        time.sleep(_POLL_SECONDS if timeout is None else max(0.0, min(_POLL_SECONDS, timeout)))

    def final_state(self) -> JobState:
        """Return the state of the job, which has ended. Raises HostError: it is unknown."""
        if not self.job.state.phase.is_final:
            who = f"{self.job.scheduler} no longer knows job {self.job.state.batch_id}"
            log = self._folder.path / self._folder.batch_log.name
            raise HostError(
                f"{who}, and its record has no end: its result is unknown",
                hint=f"what its batch script printed: {log}" if log.exists() else None,
            )
        return self.job.state

    def close(self) -> None:
        """There is nothing to close."""


class RemoteChannel(Channel[Notice, Request]):
    """A channel to the supervisor of a submitted job, by a process that its scheduler started."""

    def __init__(
        self, connection: socket.socket, process: subprocess.Popen[bytes], errors: IO[bytes]
    ) -> None:
        descriptor = connection.detach()
        super().__init__(descriptor, descriptor, Notice)
        self._process, self.errors = process, errors

    def receive(self) -> list[tuple[int, Notice]]:
        """Receive messages, and check their fields. Raises HostError."""
        try:
            return [(seq, from_json(type(each), each)) for seq, each in super().receive()]
        except (ProtocolError, ValueError) as error:
            raise HostError("the supervisor's answer is not a message of distrun") from error

    def close(self) -> None:
        super().close()
        with self._process:  # it ends by that, once all has arrived that was sent
            try:
                self._process.wait(_DISCONNECT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        atexit.unregister(self._process.kill)
        self.errors.close()


def connect(folder: JobFolder) -> RemoteChannel | None:
    """Return a channel to the supervisor of a submitted job; None: the job has ended.

    Raises:
        HostError: the job waits, or its supervisor cannot be reached.
    """
    job, batch, name = look(folder), folder.batch_job(), f"the supervisor of job {folder.job_id}"
    if job.problem is not None:
        raise job.problem
    if job.is_over or batch is None:
        return None
    if job.has_not_begun:
        hint = f"to see what it waits for: distrun status {folder.job_id}"
        raise HostError(f"{name} does not run yet", hint=hint)
    if job.entry is not None and job.entry.state == "SUSPENDED":
        hint = f"to let it continue: scontrol resume {batch.id}"
        raise HostError(f"job {folder.job_id} is suspended in Slurm", hint=hint)
    code = held_package.read(relay.__file__).decode()
    command = scheduler_of(batch).python_beside(folder, batch, code)
    connection, theirs = socket.socketpair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the channel reads it
    # A signal may end this command at any moment, but not before the process is known.
    with theirs, syscalls.blocked():
        end = theirs.fileno()
        process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=errors, start_new_session=True
        )
        atexit.register(process.kill)
    connection.settimeout(_CONNECT_SECONDS)
    received = b""
    with contextlib.suppress(OSError):
        while not received.endswith(relay.MARK) and (byte := connection.recv(1)):
            received += byte
    if received.endswith(relay.MARK):
        return RemoteChannel(connection, process, errors)
    connection.close()
    process.kill()
    process.wait()
    with errors:
        said = _said(errors)
    job = look(folder)
    if job.is_over:  # since just now
        return None
    if job.entry is not None and job.entry.state in ("ending", "COMPLETING"):
        hint = f"to wait for its end: distrun wait {folder.job_id}"
        raise HostError(f"{name} is ending", hint=hint)
    raise HostError(f"{name} cannot be reached: {said or 'it has not answered'}")


def _said(errors: IO[bytes]) -> str:
    errors.seek(0)
    return " | ".join(errors.read().decode("utf-8", "replace").strip().splitlines())


def require_ended(folder: JobFolder, channel: Channel[Notice, Request]) -> None:
    """Check that a job whose channel has ended has ended. Raises HostError: its link is lost."""
    job = look(folder)
    # The scheduler still knows a job that has just ended, or queues it again.
    if job.is_active and not job.state.phase.is_final:
        text = f"the connection to the supervisor of job {folder.job_id} was lost"
        if isinstance(channel, RemoteChannel) and (said := _said(channel.errors)):
            text += f": {said}"
        raise HostError(text, hint="the job continues; call this command again")


def stop(folder: JobFolder, order: StopJob, say: Callable[[str], None]) -> bool:
    """Stop a submitted job; once nothing of it is left, return whether this has ended it.

    Its batch script, or its supervisor's pod, gets a signal, and has the tasks stopped in their
    order. If it does not end in time, it is cancelled. `say` is called with what is waited for, and
    with how the job ended.

    Raises:
        HostError: the scheduler does not answer, or does not end it.
        UsageError: the job is lost.
        OSError: the order cannot be written into the job's folder.
    """
    job, name = look(folder, asks=True), f"job {folder.job_id}"
    batch = folder.batch_job() or BatchJob(id="")
    if not batch.id:
        raise HostError(
            f"it is not known whether Slurm has queued {name}: its `distrun submit` died",
            hint="look for it with `squeue --me`, and end it with scancel",
        )
    if job.is_over and not job.state.phase.is_final:
        raise UsageError(f"{name} is lost: {job.scheduler} does not know it any more")
    if job.is_over:
        if batch.namespace and job.entry is not None:  # pods of its tasks may be left
            _end_rest(folder, batch)
        say(f"{name} had already {job.state.phase.value}")
        return False
    if job.problem is not None and job.state.phase.is_final:
        raise job.problem  # by its record, it has ended; a further one may wait in the queue
    stop_order.leave(order, folder)
    grace = stop_order.grace_of(order, job.state.timeouts.grace)
    _end(folder, batch, grace, lambda what: say(f"{name}: waiting for {what}"))
    if not folder.state().phase.is_final:
        record_stop(folder, order)
    say(f"{name} has ended{'' if batch.is_own else _KEPT}")
    return True


def _end(folder: JobFolder, batch: BatchJob, grace: float, on_slow: Callable[[str], None]) -> None:
    """Signal a job, and cancel it if it does not end in time. Raises HostError."""
    job, scheduler = look(folder, asks=True), scheduler_of(batch)
    deadline = time.monotonic() + grace + KILL_GRACE + _REGISTER_SECONDS
    gives_up_at = deadline + _CANCEL_SECONDS
    is_signalled = is_canceled = False
    while job.is_active or job.problem is not None:
        is_final = isinstance(job.problem, MissingCommandError | RefusedError)
        if job.problem is not None and (is_final or time.monotonic() > deadline):
            raise job.problem
        if time.monotonic() > gives_up_at:
            raise _not_ended(scheduler, batch.id, job)
        if job.has_not_begun:
            scheduler.cancel(batch, only_pending=True)
        elif job.state.phase is JobPhase.PENDING and job.entry is not None and not is_canceled:
            # The lines of `slurm.setup` still run: a signal to their shell would leave them.
            is_canceled = True
            scheduler.cancel(batch)
        elif not is_signalled and job.entry is not None:
            is_signalled = True
            with contextlib.suppress(SchedulerError):
                scheduler.signal(folder, batch)  # it may just have ended, or be about to start
            on_slow(f"the tasks to end (grace: {grace:g} s)")
        elif not is_canceled and time.monotonic() > deadline:
            is_canceled = True
            on_slow(f"{scheduler.NAME} to end it")
            scheduler.cancel(batch)
        time.sleep(_POLL_SECONDS / 2)
        job = look(folder, asks=True)


def _end_rest(folder: JobFolder, batch: BatchJob) -> None:
    """End the pods that a lost supervisor has left. Raises HostError: they do not end."""
    scheduler = scheduler_of(batch)
    scheduler.cancel(batch)
    gives_up_at = time.monotonic() + folder.state().timeouts.grace + _CANCEL_SECONDS
    while (job := look(folder, asks=True)).entry is not None or job.problem is not None:
        if time.monotonic() > gives_up_at:
            raise job.problem or _not_ended(scheduler, batch.id, job)
        time.sleep(_POLL_SECONDS)


def _not_ended(scheduler: Scheduler, number: str, job: QueuedJob) -> HostError:
    state = "" if job.entry is None else job.entry.state
    name, show, end = scheduler.NAME, scheduler.SHOW, scheduler.END
    return HostError(
        f"{name} has not ended job {number}, although `{end}` was accepted: it is {state}",
        hint=f"look at it: {show} {number}; to try again: {end} {number}",
    )


def record_queued(
    folder: JobFolder, spec: Spec, number: str, scheduler: str, cause: Cause | None = None
) -> None:
    """Record that a job waits in the queue of a scheduler, whose id of it is `number`.

    `cause`: why it was queued again.
    """
    queued = JobQueued(
        at=time.time(),
        job_id=folder.job_id,
        name=spec.name,
        strategy=spec.strategy,
        spec_file=folder.shown(folder.spec_file),
        batch_id=number,
        scheduler=scheduler,
        timeouts=spec.timeouts,
        cause=cause,
    )
    with contextlib.closing(EventLog(str(folder.events_file))) as log:
        log.append(queued)


def record_stop(folder: JobFolder, order: StopJob) -> None:
    """Record that a job was stopped that no supervisor has. One that has a supervisor is left."""
    with (
        contextlib.suppress(BlockingIOError),
        folder.locked(),
        contextlib.closing(EventLog(str(folder.events_file))) as log,
    ):
        log.append(stop_order.event_of(order, folder.state().timeouts.grace))
        log.append(JobEnded(at=time.time(), outcome=Outcome.stopped(EXIT_KILLED, order.cause)))
