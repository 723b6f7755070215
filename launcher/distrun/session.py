"""A launch command's side of its job: it starts the supervisor and goes on until a point is met.

The supervisor's events are replayed here as they come, so :attr:`Session.state` is the job's.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from distrun import events, lifecycle
from distrun.agent import protocol
from distrun.agent.linux import processes, syscalls
from distrun.agent.protocol.channel import Channel
from distrun.codec import to_json
from distrun.errors import DistrunError, InternalError
from distrun.supervisor.hosts.local import isolated_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distrun.agent.protocol import Notice, file_messages
    from distrun.jobstore import JobFolder
    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest

_STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Channel = Channel[protocol.Notice, protocol.Request]
SIGPIPE_EXIT = 128 + signal.SIGPIPE


class Output:
    """Where the tasks' output goes. It may vanish; then nothing more is written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_terminal = os.isatty(descriptor)
        self.is_gone = False

    def write(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self._write(block)

    def _write(self, block: bytes) -> None:
        view = memoryview(block)
        while view and not self.is_gone:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                _wait_writable(self._descriptor)
            except OSError:  # a closed pipe, a terminal that hung up
                self.is_gone = True


def _wait_writable(descriptor: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_WRITE)
        selector.select()


class Session:
    """One job, from its supervisor's start until this command lets go of it.

    Args:
        folder: where the job is to be; the supervisor makes it.
        preflight: whether other hosts are tried out before the first task starts.
        on_event: called after each event, with it and the state it led to.
        on_signal: called with the number of a signal that asks the job to end.
        on_sending: called when it is known how far the files for other hosts have come.
        manifest: the files that other hosts are sent; None: nothing.
    """

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        *,
        preflight: bool = True,
        on_event: Callable[[events.Event, lifecycle.JobState], None],
        on_signal: Callable[[int], None],
        on_sending: Callable[[file_messages.TransferProgress], None] = lambda _: None,
        manifest: Manifest | None = None,
    ) -> None:
        self.folder = folder
        self.state = lifecycle.JobState()
        self.progress: dict[str, dict[str, str]] = {}
        """What each task said of itself last."""
        self._on_event = on_event
        self._on_signal_asked = on_signal
        self._on_sending = on_sending
        self._sends_files = manifest is not None
        self._selector = selectors.DefaultSelector()
        # Should the supervisor die, what it leaves comes to this process.
        syscalls.become_subreaper()
        self._signals = syscalls.signal_pipe(_STOPPING_SIGNALS)
        self._channel, self._process = _start_supervisor(folder.job_id)
        self._channel.send(
            protocol.OpenJob(
                protocol.PROTOCOL,
                folder.job_id,
                str(folder.path),
                to_json(spec),
                spec.source,
                preflight,
                None if manifest is None else to_json(manifest),
            )
        )
        self._selector.register(self._channel.reader, selectors.EVENT_READ, self._on_supervisor)
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever the descriptor is readable while :meth:`run` runs."""
        self._selector.register(descriptor, selectors.EVENT_READ, on_readable)

    def run(
        self,
        until: Callable[[lifecycle.JobState], bool],
        tick: Callable[[], float | None] = lambda: None,
    ) -> Iterator[None]:
        """Go on until the state meets `until` or is final.

        Yields each time something has happened, and after `tick()` seconds without.

        Raises:
            DistrunError: the supervisor refused the job.
            InternalError: the supervisor died; nothing of the job is left.

        A supervisor does not wait for a launch that reads no more: the record has what is missing.
        """
        while not (self.state.phase.is_final or until(self.state)):
            self._channel.watch_writing(self._selector)
            for key, _ in self._selector.select(tick()):
                key.data()
            if self._channel.ended and not self.state.phase.is_final:
                self._take_leave_of_supervisor()
            yield

    def stop(self, order: protocol.StopJob) -> None:
        """Ask the supervisor to end the job; asked again, at once."""
        self._channel.send(order)
        processes.wake(self._process.pid)

    def detach(self) -> None:
        """Let the job go on without this command."""
        self._channel.send(protocol.Detach())
        while self._channel.pending:
            self._channel.watch_writing(self._selector)
            for key, _ in self._selector.select():
                key.data()
        self._channel.close()

    def close(self) -> None:
        """Wait for the supervisor of an ended job to be gone."""
        self._channel.close()
        self._process.wait()

    def _on_supervisor(self) -> None:
        for _, message in self._channel.receive():
            self._on_message(message)

    def _on_message(self, message: Notice) -> None:
        if isinstance(message, protocol.Refused):
            error = DistrunError(cause=message.cause)
            error.exit_code = message.exit_code
            raise error
        if isinstance(message, protocol.Progress):
            self.progress[message.task] = message.values
        if self._sends_files:
            from distrun.agent.protocol.file_messages import TransferProgress

            if isinstance(message, TransferProgress):
                self._on_sending(message)
        if isinstance(message, protocol.JobEvent):
            event = events.decode(message.event)
            if isinstance(event, events.TaskStarted):
                self.progress.pop(event.task, None)  # what the attempt before it had said
            if event is not None:
                self.state, _ = lifecycle.step(self.state, event)
                self._on_event(event, self.state)

    def _on_signal(self) -> None:
        for number in os.read(self._signals.fileno(), 64):
            self._on_signal_asked(number)

    def _take_leave_of_supervisor(self) -> None:
        status = self._process.wait()
        processes.end_all(protocol.KILL_GRACE)
        recorded = self.folder.state()
        if status == 0 and recorded.phase.is_final:
            self.state = recorded
            return
        how = (
            f"exited with {status}"
            if status >= 0
            else f"was killed by {syscalls.signal_name(-status)}"
        )
        raise InternalError(
            f"the supervisor of job {self.folder.job_id} {how}; its tasks have been ended",
            hint=f"what it wrote last is in {self.folder.supervisor_log}",
        )


def _start_supervisor(
    job_id: str,
) -> tuple[Channel[protocol.Notice, protocol.Request], subprocess.Popen[bytes]]:
    """A process in a session of its own: the terminal's signals do not reach it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            isolated_python("distrun.supervisor.main", job_id, str(theirs.fileno())),
            stdin=subprocess.DEVNULL,
            stdout=_stderr(),
            stderr=_stderr(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={**os.environ, "DISTRUN_JOB_ID": job_id},
        )
    descriptor = ours.detach()
    return Channel(descriptor, descriptor, protocol.Notice), process


def _stderr() -> int:
    """Where a new supervisor may complain until it has a log; stderr may be closed."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2
