"""The job that a supervisor runs: its state, which events alone change, and what all parts use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.job import events
from distrun.supervisor.event_queue import EventQueue
from distrun.supervisor.job_record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrun.errors import DistrunError
    from distrun.job.folder import JobFolder
    from distrun.plan import TaskPlan
    from distrun.spec.model import Spec
    from distrun.supervisor.clients import Clients
    from distrun.supervisor.hosts.pool import HostPool
    from distrun.supervisor.job_hosts import JobHosts


class RunningJob:
    """The job of this process.

    Args:
        former: its state when an earlier supervisor ended; None: the job is new.

    Raises:
        OSError: its record cannot be written.
    """

    hosts: HostPool
    clients: Clients
    """The commands that are connected."""

    def __init__(
        self, folder: JobFolder, spec: Spec, former: lifecycle.JobState | None = None
    ) -> None:
        self.folder, self.spec, self.former = folder, spec, former
        self.loop = Loop()
        self.last_change = 0.0 if former is None else folder.last_change()
        """When the earlier supervisor had written last (Unix time)."""
        self.record = JobRecord(folder, is_resumed=former is not None)
        self.state = lifecycle.JobState() if former is None else former
        self.known: JobHosts | None = None
        """What is known of the hosts; None: they are not used yet."""
        self.tasks: dict[str, TaskPlan] = {}
        """Those of the present plan, by their names."""
        self._events = EventQueue(self._handle)
        self.call_after = self._events.call_after
        """See :meth:`.EventQueue.call_after`."""
        self.handlers: dict[type[lifecycle.Action], Callable[[Any], object]] = {}
        """What carries out each kind of the lifecycle's actions."""
        self.observers: list[
            Callable[[lifecycle.JobState, events.Event, lifecycle.JobState], object]
        ] = []
        """Called with each event, the state before it and the state after it."""
        self.after_actions: list[Callable[[], object]] = []
        """Called once the actions that follow from an event have been carried out."""

    def emit(self, event: events.Event) -> None:
        """Record an event and carry out the actions that follow from it.

        An event of which that is the consequence waits until all of these are carried out.
        """
        self._events.add(event)

    def _handle(self, event: events.Event) -> None:
        written = self.record.write(event)
        if written is None:
            self._events.add_first(self.record.failure, event)
            return
        self.clients.broadcast(protocol.JobEvent(written))
        before = self.state
        self.state, actions = lifecycle.step(before, event)
        for observe in self.observers:
            observe(before, event, self.state)
        for action in actions:
            self.handlers[type(action)](action)
        for function in self.after_actions:
            function()

    def abort(self, error: DistrunError) -> None:
        """End the job because of an error."""
        self.emit(events.Aborted(at=time.time(), cause=error.as_cause(), exit_code=error.exit_code))

    def has_own_logs(self, host: str) -> bool:
        """Whether the tasks on a host write their logs there, and see none of this one's files."""
        return self.known is None or self.known.has_own_logs(host)
