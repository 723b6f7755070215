"""A command's side of a job: follows its supervisor, which this command or another has started.

The supervisor's events are replayed here as they arrive, so the session's state is the job's.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import TYPE_CHECKING

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.linux import processes, syscalls
from distrun.agent.loop import Loop
from distrun.agent.protocol.file_messages import TransferProgress
from distrun.codec import to_json
from distrun.errors import InternalError
from distrun.job import control, events, held_package, installed
from distrun.job.record import EventReader
from distrun.supervisor import guard, supervisor_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distrun.agent.protocol import Notice
    from distrun.job.folder import JobFolder
    from distrun.job.resumption import Resumption
    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest

_EXIT_SECONDS = 10.0
_DETACH_SECONDS = 2.0
_COPY_SECONDS = 0.5
"""How often what is new in the folder of a job on another machine is brought here."""


class Listener:
    """Receives what happens to a job that is followed. This class ignores it."""

    def on_event(self, event: events.Event, state: lifecycle.JobState) -> None:
        """Take an event, and the state that it leads to."""

    def on_signal(self, number: int) -> None:
        """Take a signal that asks for an end."""

    def on_transfer(self, message: TransferProgress) -> None:
        """Take how far the transfer of files to other hosts, or of results from them, is."""


class FollowedJob:
    """Follows one job by what its supervisor sends, and passes signals on to the listener."""

    _channel: control.SupervisorChannel

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self.listener = Listener()
        self.state = lifecycle.JobState()
        self.progress: dict[str, protocol.Progress] = {}
        """What each task reported last through DISTRUN_NOTIFY."""
        self._loop = Loop()
        handlers = [(number, signal.getsignal(number)) for number in syscalls.ENDING_SIGNALS]
        # Under nohup, SIGHUP is ignored, and stays so.
        self._handlers = [each for each in handlers if each != (signal.SIGHUP, signal.SIG_IGN)]
        self._signals = syscalls.signal_pipe([number for number, _ in self._handlers])
        self._loop.watch(self._signals, self._on_signal)
        self.watch, self.unwatch = self._loop.watch, self._loop.unwatch

    def _follow(self, channel: control.SupervisorChannel) -> None:
        self._channel = channel
        self._loop.watch(channel.reader, self._on_supervisor)
        self._loop.before_wait.append(lambda: channel.watch_writing(self._loop))

    @property
    def signals(self) -> int:
        """A descriptor that is readable when a signal has arrived."""
        return self._signals.fileno()

    def read_signals(self) -> bytes:
        """Return the numbers of the signals that have arrived, without waiting."""
        # The descriptor also receives signals that this process sends itself, such as SIGALRM.
        return bytes(
            each for each in self._signals.read(64) or b"" if each in syscalls.ENDING_SIGNALS
        )

    def restore_signals(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def run(
        self,
        until: Callable[[lifecycle.JobState], bool],
        tick: Callable[[], float | None] = lambda: None,
    ) -> Iterator[None]:
        """Follow the job until `until(state)` is true or the state is final.

        Yields after each event, and after `tick()` seconds without one. If this command reads too
        slowly, the supervisor ends without it; the end of the job is then read from the record.

        Raises:
            DistrunError: the supervisor refused the job.
            InternalError: the supervisor died; nothing of the job is left.
        """
        while not (self.state.phase.is_final or until(self.state)):
            self._loop.turn(tick())
            if self._channel.ended and not self.state.phase.is_final:
                self._on_supervisor_exit()
            yield

    def _on_supervisor(self) -> None:
        for _, message in self._channel.receive():
            self._on_message(message)

    def _on_message(self, message: Notice) -> None:
        if isinstance(message, protocol.Refused):
            control.require_accepted(message)
        if isinstance(message, protocol.Progress):
            self.progress[message.task] = message
        if isinstance(message, TransferProgress):
            self.listener.on_transfer(message)
        if isinstance(message, protocol.JobEvent):
            event = events.decode(message.event)
            if event is not None:
                self._step(event)

    def _on_signal(self) -> None:
        for number in self.read_signals():
            self.listener.on_signal(number)

    def _step(self, event: events.Event) -> None:
        if isinstance(event, events.TaskStarted):
            self.progress.pop(event.task, None)  # the previous attempt's
        self.state, _ = lifecycle.step(self.state, event)
        self.listener.on_event(event, self.state)

    def stop(self, order: protocol.StopJob) -> None:
        """Ask the supervisor to stop the job; the second request kills it at once."""
        self._channel.send(order)

    def close(self) -> None:
        self._channel.close()

    def _on_supervisor_exit(self) -> None:
        """Take the job's end from the record. Raises InternalError if it has none."""
        raise NotImplementedError


class AttachedJob(FollowedJob):
    """Follows a running job. Its end, or this process's, changes nothing for the job.

    The record says what happened: what the supervisor sends is only the reason to read it.
    """

    def __init__(self, folder: JobFolder) -> None:
        channel = control.connect(folder)  # it may take long, and signals end that
        final = control.wait_for_final_state(folder) if channel is None else None
        super().__init__(folder)
        self._record = EventReader(str(folder.events_file))
        self._is_copy = folder.is_elsewhere
        """Whether the record and the logs are to be brought here again and again."""
        self.has_supervisor = channel is not None
        """False: the job has ended."""
        if channel is not None:
            channel.send(protocol.Watch())
            self._follow(channel)
            with contextlib.suppress(FileNotFoundError):
                self.state = lifecycle.replay(self._record.read_new())
            if self._is_copy:
                self._copy_later()
        self.state = final or self.state

    def stop(self, order: protocol.StopJob) -> None:
        super().stop(order)
        control.resume_supervisor(self.folder)

    def close(self) -> None:
        if self.has_supervisor:
            super().close()

    def _on_message(self, message: Notice) -> None:
        if isinstance(message, (protocol.WatchStarted, protocol.JobEvent)):
            self._read_events()
        else:
            super()._on_message(message)

    def _copy_later(self) -> None:
        self._loop.call_at(self._loop.now() + _COPY_SECONDS, self._copy)

    def _copy(self) -> None:
        self._read_events()
        self._copy_later()

    def _read_events(self) -> None:
        if self._is_copy:
            from distrun.job import queued_job

            queued_job.refresh(self.folder)
        with contextlib.suppress(FileNotFoundError):
            for event in self._record.read_new():
                self._step(event)

    def _on_supervisor_exit(self) -> None:
        self._read_events()
        if not self.state.phase.is_final:
            control.require_supervisor_ended(self.folder, self._channel)
            self.state = control.wait_for_final_state(self.folder)


class Session(FollowedJob):
    """Starts the supervisor of one job and follows it until the job ends or is detached.

    `manifest`: the files that other hosts are sent. `resumed`: what to resume; None: the job is
    new, and the supervisor creates its folder.
    """

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        *,
        preflight: bool,
        manifest: Manifest | None,
        resumed: Resumption | None = None,
    ) -> None:
        super().__init__(folder)
        self._former = None if resumed is None else resumed.former
        self.has_answered = True
        """Whether the supervisor has answered since :meth:`check_supervisor`."""
        # If the supervisor dies, this process inherits its child processes.
        syscalls.become_subreaper()
        self._process, descriptor = supervisor_process.start(folder.job_id)
        channel = control.SupervisorChannel(descriptor, descriptor, protocol.Notice)
        files = None if manifest is None else to_json(manifest)
        path, job = str(folder.path), to_json(spec)
        changes = None if resumed is None else resumed.changes
        channel.send(
            protocol.OpenJob(
                *(folder.job_id, path, job, spec.source, preflight, files, changes),
                assumed_dead=() if resumed is None else resumed.assumed_dead,
                versions=installed.versions(spec.program),
            )
        )
        self._loop.call_at(self._loop.now() + held_package.AFTER_SECONDS, held_package.hold)
        self._follow(channel)

    def stop(self, order: protocol.StopJob) -> None:
        super().stop(order)
        processes.resume(self._process.pid)

    def check_supervisor(self) -> None:
        """Ask the supervisor to answer; :attr:`has_answered` is then false until it does."""
        self.has_answered = False
        self._channel.send(protocol.Watch())
        processes.resume(self._process.pid)

    def kill_supervisor(self) -> list[int]:
        """Kill the supervisor, and end all that it leaves on this machine.

        Returns the ids of processes that have not ended after a few seconds.
        """
        family = list(processes.tree(self._process.pid))
        if family:
            processes.send(family[0], signal.SIGKILL)
        grace, left = protocol.KILL_GRACE, (lambda: list(filter(processes.is_alive, family)))
        return [each.pid for each in processes.Ending(grace, left, grace).run()]

    def detach(self) -> None:
        """Leave the job to its supervisor, when that needs nothing of the package's files."""
        self.listener, self.has_answered = Listener(), False
        self._channel.send(protocol.Detach())
        self._channel.send(protocol.Watch())
        deadline = self._loop.now() + _DETACH_SECONDS
        while not (self.has_answered or self._channel.ended) and self._loop.now() < deadline:
            self._loop.turn(_DETACH_SECONDS)
        self._channel.close()

    def close(self) -> None:
        """Wait for the exit of the supervisor of an ended job, but not for one that hangs."""
        super().close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)

    def _on_message(self, message: Notice) -> None:
        if isinstance(message, protocol.WatchStarted):
            self.has_answered = True
        super()._on_message(message)

    def _step(self, event: events.Event) -> None:
        if isinstance(event, events.JobResumed) and self._former is not None:
            self.state = self._former
        super()._step(event)

    def _on_supervisor_exit(self) -> None:
        status = self._process.wait()
        left = guard.end_processes()
        recorded = self.folder.state()
        is_told = status == 0 or (
            recorded.outcome is not None and recorded.outcome.exit_code == status
        )
        if is_told and recorded.phase.is_final:
            self.state = recorded
            return
        how = f"exited with {status}"
        if status == InternalError.exit_code:
            how = "failed, which is a defect in distrun"
        if status < 0:
            how = f"was killed by {syscalls.signal_name(-status)}"
        if not self.folder.path.exists():
            raise InternalError(f"the supervisor {how} before the job began")
        pids = " ".join(str(each.pid) for each in left)
        said = f"processes of its tasks do not die, not even by SIGKILL: {pids}"
        said = said if left else "its tasks have been ended"
        raise InternalError(
            f"the supervisor of job {self.folder.job_id} {how}; {said}",
            hint=f"its log is {self.folder.supervisor_log}",
        )


def all_executed(state: lifecycle.JobState) -> bool:
    """Whether every task's program was executed. Some may have exited since."""
    # Tasks start in their order, so the last one shows soonest that some are missing.
    tasks = (state.tasks[name] for name in reversed(state.tasks))
    return bool(state.tasks) and all(
        (task.started_at is not None and task.attempt == task.first_attempt)
        or task.attempt > task.first_attempt
        or state.has_finished(task)  # before the job was resumed
        for task in tasks
    )
