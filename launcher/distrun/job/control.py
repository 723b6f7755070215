"""Operations of commands on a running job: connect to its supervisor, wait, clean up."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, TypeAlias

from distrun.agent import protocol
from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol.channel import Channel
from distrun.codec import from_json
from distrun.errors import DistrunError, HostError, InternalError, WaitTimeoutError
from distrun.job import held_package, leftovers, record
from distrun.job.stacks import ProcessStacks, Stacks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distrun.job.folder import JobFolder
    from distrun.job.queued_job import QueuedJobWatch
    from distrun.lifecycle import JobState

_CONNECT_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_STACKS_SECONDS = 45.0
"""How long a supervisor may take, which itself waits 30 s for the hosts."""
_REFUSAL_SECONDS = 1.0
"""How long an order to stop waits for a refusal of the supervisor."""
_RETRY_SECONDS = 0.01
_EXIT_SECONDS = 5.0
"""How long a supervisor that has closed a channel may take to end."""
_LOOK_SECONDS = 0.2

SupervisorChannel = Channel[protocol.Notice, protocol.Request]
"""A command's end of a connection to a supervisor."""
JobWatch: TypeAlias = "SupervisorWatch | QueuedJobWatch"


def connect(folder: JobFolder, patience: float = _CONNECT_SECONDS) -> SupervisorChannel | None:
    """Return a channel to a job's supervisor; None if there is no supervisor.

    From then on, this process needs no file of distrun's package: it may follow the job for days.

    Raises:
        InternalError: the supervisor lives and has not answered for `patience` seconds.
        HostError: it is on another machine, and cannot be reached.
    """
    if folder.is_elsewhere:
        from distrun.job import queued_job

        return queued_job.connect(folder)
    deadline = time.monotonic() + patience
    while True:
        connection = folder.connect()
        if connection is not None:
            held_package.hold()
            descriptor = connection.detach()
            return Channel(descriptor, descriptor, protocol.Notice)
        # A supervisor does not listen while it starts, nor when it is about to end.
        if folder.supervisor_pid() is None:
            return None
        if time.monotonic() > deadline:
            raise unanswered(folder)
        time.sleep(_RETRY_SECONDS)


def unanswered(folder: JobFolder) -> InternalError:
    pid, job_id = folder.supervisor_pid(), folder.job_id
    if pid is None:
        return InternalError(f"the supervisor of job {job_id} died")
    text = f"the supervisor of job {job_id} ({folder.supervisor_place}) does not answer"
    if pid <= 0:
        return InternalError(text, hint=f"in the container that launched it: distrun kill {job_id}")
    hint = f"to end it and all its tasks: kill -KILL {pid}; distrun kill {job_id}"
    if folder.is_suspended:
        hint = f"to let it continue: kill -CONT {pid}; {hint}"
        state = folder.state()
        if state.timeouts.link and any(host.token for host in state.hosts.values()):
            text += (
                f", and tasks on other hosts end within {state.timeouts.link:g} s (timeouts.link)"
            )
    return InternalError(text, hint=hint)


def resume_supervisor(folder: JobFolder) -> None:
    supervisor = folder.supervisor_pid()
    if supervisor is not None and supervisor > 0:
        processes.resume(supervisor)


def request_stop(channel: SupervisorChannel, order: protocol.StopJob) -> None:
    """Ask the supervisor at the other end to stop its job, and to report the events until then."""
    channel.send(protocol.Watch())
    channel.send(order)


def stop(folder: JobFolder, order: protocol.StopJob) -> str:
    """Ask a job's supervisor to stop its job, and do not wait; return what the job does now.

    Raises:
        DistrunError: the supervisor does not answer, or does not understand the request.
    """
    resume_supervisor(folder)
    channel = connect(folder)
    if channel is None:
        return "the job has ended"
    with contextlib.closing(channel):
        request_stop(channel, order)
        for _ in notices(channel, _REFUSAL_SECONDS):
            pass
        if channel.ended:
            require_supervisor_ended(folder, channel)
    return "the job is stopping"


def notices(channel: SupervisorChannel, seconds: float | None = None) -> Iterator[protocol.Notice]:
    """Send what is queued, and yield what arrives until the channel ends, for so many seconds.

    The end of the channel is not the job's: see :func:`require_supervisor_ended`.

    Raises:
        DistrunError: the supervisor does not understand a request.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while not channel.ended:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        writers = [channel.writer] if channel.pending else []
        syscalls.wait_until_ready([channel.reader], writers, left)
        channel.flush()
        for _, message in channel.receive():
            require_accepted(message)
            yield message


def require_accepted(message: protocol.Notice) -> None:
    """Raise DistrunError if a supervisor has refused a job, or does not understand a request."""
    if isinstance(message, protocol.Refused):
        refused = from_json(protocol.Refused, message)
        error = DistrunError(cause=refused.cause)
        error.exit_code = refused.exit_code
        raise error


def require_supervisor_ended(folder: JobFolder, channel: SupervisorChannel) -> None:
    """Check that a supervisor that has closed a channel has done so because it ended.

    Raises:
        DistrunError: it lives.
    """
    if folder.is_elsewhere:
        from distrun.job import queued_job

        queued_job.require_ended(folder, channel)
        return
    if _living(folder, _EXIT_SECONDS) is not None:
        raise unanswered(folder)


def wait_for_final_state(folder: JobFolder, timeout: float | None = None) -> JobState:
    """Wait for the end of a job, and return its state.

    Raises:
        WaitTimeoutError: the job has not ended after `timeout` seconds.
        HostError: the record is damaged and does not have the job's end, or it was removed.
        InternalError: the supervisor died, and the record does not have the job's end.
    """
    late = WaitTimeoutError(f"job {folder.job_id} has not ended yet")
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        patience = _CONNECT_SECONDS if timeout is None else timeout
        watched = watch(folder, patience=patience, wakes=False)
    except InternalError:
        if timeout is None:
            raise
        raise late from None
    with contextlib.closing(watched):
        while not watched.has_ended():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise late
            watched.wait(left)
        return watched.final_state()


def _unknown_result(folder: JobFolder) -> DistrunError:
    if not folder.path.exists():
        return removed_error(folder)
    hint, unknown = f"its record: {folder.path}", "the result of the job is unknown"
    fault = record.fault(str(folder.events_file))
    if fault is not None:
        return HostError(f"the record of job {folder.job_id} {fault}: {unknown}", hint=hint)
    if folder.resolved_spec_file.exists():
        hint = f"to continue it: distrun resume {folder.job_id}; {hint}"
    if leftovers.exist_here(folder):
        hint = f"its tasks still run; to end them: distrun kill {folder.job_id}"
    return InternalError(f"the supervisor of job {folder.job_id} died: {unknown}", hint=hint)


def _living(folder: JobFolder, seconds: float) -> int | None:
    """Return the supervisor that has closed a channel, if it still lives after so many seconds."""
    deadline = time.monotonic() + seconds
    while (supervisor := folder.supervisor_pid()) is not None and time.monotonic() <= deadline:
        time.sleep(_RETRY_SECONDS)
    return supervisor


def removed_error(folder: JobFolder) -> HostError:
    what = f"the record of job {folder.job_id} was removed while the job ran"
    return HostError(f"{what}; its result is unknown", hint=f"its record was: {folder.path}")


def progress(folder: JobFolder) -> dict[str, protocol.Progress]:
    """Return what each task of a running job has reported or printed last, if it is near.

    Raises:
        DistrunError: the supervisor does not answer, or does not understand the request.
    """
    found: dict[str, protocol.Progress] = {}
    if folder.is_elsewhere:  # its record and its samples have to do
        return found
    if folder.is_suspended:
        raise unanswered(folder)
    channel = connect(folder, _ANSWER_SECONDS)
    if channel is None:
        return found
    with contextlib.closing(channel):
        channel.send(protocol.Watch())
        for message in notices(channel, _ANSWER_SECONDS):
            if isinstance(message, protocol.Progress):
                found[message.task] = message
            elif isinstance(message, protocol.WatchStarted):
                return found
        if channel.ended:
            return found
        raise unanswered(folder)


def take_stacks(
    folder: JobFolder,
    program: str | None,
    tasks: Sequence[str],
    *,
    native: bool = False,
    seconds: int = 0,
) -> Stacks | None:
    """Return the stacks of a job's tasks; None if it has ended.

    Args:
        folder: the job's.
        program: the path of py-spy; '': there is none; None: the supervisor's own.
        tasks: the names of those that are asked for; none means all.
        native: whether to show frames of C and C++ functions, too.
        seconds: record for so long; 0: look once.

    Raises:
        DistrunError: the supervisor does not answer, or does not understand the request.
    """
    channel = connect(folder)
    if channel is None:
        if not (folder.is_elsewhere or folder.state().phase.is_final):
            raise _unknown_result(folder)
        return None
    with contextlib.closing(channel):
        if folder.is_suspended:
            raise unanswered(folder)
        channel.send(protocol.TakeStacks(program, tasks, native, seconds))
        for message in notices(channel, _STACKS_SECONDS + seconds):
            if isinstance(message, protocol.StacksTaken):
                found = [from_json(ProcessStacks, each) for each in message.processes]
                return Stacks(processes=found, silent=dict(message.silent))
        if not channel.ended:
            raise unanswered(folder)
        require_supervisor_ended(folder, channel)
    return None


def watch(folder: JobFolder, *, patience: float = _CONNECT_SECONDS, wakes: bool = True) -> JobWatch:
    """Return what detects the end of a job. Close it.

    `wakes`: whether its `wait` ends with everything that happens to the job.
    """
    if folder.is_elsewhere:
        from distrun.job.queued_job import QueuedJobWatch

        return QueuedJobWatch(folder)
    return SupervisorWatch(folder, patience, wakes=wakes)


class SupervisorWatch:
    """Detects the end of a job whose supervisor is on this machine, without polling."""

    polls = False
    """Whether the job's files must be looked at again and again: others write them."""

    def __init__(self, folder: JobFolder, patience: float, *, wakes: bool) -> None:
        self._folder, self._wakes = folder, wakes
        self._follow(patience)

    def _follow(self, patience: float) -> None:
        self._channel = connect(self._folder, patience)
        if self._channel is not None and self._wakes:
            self._channel.send(protocol.Watch())

    @property
    def descriptor(self) -> int | None:
        """A descriptor that is readable when something has happened; None: there is none."""
        return None if self._channel is None else self._channel.reader

    def has_ended(self) -> bool:
        """Return whether the job has ended.

        Raises:
            DistrunError: its supervisor lives, and does not answer or understand the request.
        """
        if self._channel is None:
            return True
        for _, message in self._channel.receive():
            require_accepted(message)
        if self._channel.ended:
            self.close()
            self._channel = None
            if _living(self._folder, _LOOK_SECONDS) is not None:
                self._follow(_CONNECT_SECONDS)  # it is about to end, or the job is resumed
        return self._channel is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until something happens to the job, for so many seconds at most."""
        if self._channel is not None:
            syscalls.wait_until_ready([self._channel.reader], (), timeout)

    def final_state(self) -> JobState:
        """Return the state of the job, which has ended. Raises DistrunError: it is unknown."""
        state = self._folder.state()
        if state.outcome is None or not state.phase.is_final:
            raise _unknown_result(self._folder)
        return state

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
