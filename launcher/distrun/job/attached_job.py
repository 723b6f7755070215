"""The `attach` command's side of a job that another command has launched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from distrun.agent import protocol
from distrun.job import control
from distrun.job.record import EventReader
from distrun.job.session import FollowedJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.agent.protocol import Notice
    from distrun.job import events
    from distrun.job.folder import JobFolder
    from distrun.lifecycle import JobState


class AttachedJob(FollowedJob):
    """Follows a running job. Its end, or this process's, changes nothing for the job.

    The record says what happened: what the supervisor sends is only the reason to read it.

    Args:
        folder: the job's.
        on_event: called with each event that follows, and the state that it leads to.
        on_signal: called with the number of a signal that asks for an end.
    """

    def __init__(
        self,
        folder: JobFolder,
        *,
        on_event: Callable[[events.Event, JobState], None],
        on_signal: Callable[[int], None],
    ) -> None:
        super().__init__(folder, on_event=on_event, on_signal=on_signal, on_transfer=None)
        self._record = EventReader(str(folder.events_file))
        channel = control.connect(folder)
        self.has_supervisor = channel is not None
        """False: the job has ended."""
        if channel is not None:
            channel.send(protocol.Watch())
            self._follow(channel)
        self.state = control.wait_for_final_state(folder) if channel is None else self.state

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

    def _read_events(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for event in self._record.read_new():
                self._step(event)

    def _on_supervisor_exit(self) -> None:
        self._read_events()
        if not self.state.phase.is_final:
            control.require_supervisor_ended(self.folder)
            self.state = control.wait_for_final_state(self.folder)
