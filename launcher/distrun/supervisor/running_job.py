"""The job that a supervisor runs: its state, which events alone change, and what all parts use."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.loop import Handle, Loop
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError, InternalError
from distrun.job import events
from distrun.job.folder import JobFolder
from distrun.plan import TaskPlan
from distrun.spec.model import Spec
from distrun.strategies import Workers
from distrun.supervisor.clients import Clients
from distrun.supervisor.event_queue import EventQueue
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.job_record import JobRecord

MOST_WORDS = 200
"""Characters of an error in the cause of the job's end."""


class RunningJob:
    """The job of this process.

    `former`: its state when an earlier supervisor ended; None: the job is new. Raises OSError: its
    record cannot be written.
    """

    hosts: HostPool
    clients: Clients

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
        self.timers: dict[events.Timer, Handle] = {}
        self._events = EventQueue(self._handle)
        self.call_after = self._events.call_after
        self.handlers: dict[type[lifecycle.Action], Callable[[Any], object]] = {}
        self.observers: list[
            Callable[[lifecycle.JobState, events.Event, lifecycle.JobState], object]
        ] = []

    def begin(self, order: protocol.OpenJob) -> None:
        spec = self.spec
        same = ("name", "strategy", "success", "strict", "timeouts", "restart", "log_max_size")
        settings: dict[str, Any] = {
            **{name: getattr(spec, name) for name in same},
            "at": time.time(),
            "job_id": self.folder.job_id,
            "versions": order.versions or {},
            "spec_file": self.folder.shown(self.folder.spec_file),
            "supervisor_pid": os.getpid(),
            "workers": spec.workers or Workers.COORDINATED,
            "role_restarts": {
                role.role.value: role.restart for role in spec.roles if role.restart is not None
            },
        }
        if self.former is None or not self.former.supervisor_pid:  # it was only queued
            self.emit(events.JobCreated(**settings))
        else:
            down = max(0.0, time.time() - self.last_change)
            changes = tuple(order.changes or ())
            self.emit(events.JobResumed(**settings, changes=changes, down=down))

    def emit(self, event: events.Event) -> None:
        """Record an event and carry out what follows; another event waits meanwhile."""
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

    def abort(self, error: DistrunError) -> None:
        self.emit(events.Aborted(at=time.time(), cause=error.as_cause(), exit_code=error.exit_code))

    def abort_by_agent(self, host: str, cause: Cause) -> bool:
        """End the job if a defect in distrun's agent explains what a host says."""
        text = events.agents_defect(cause)
        if text is None:
            return False
        outcome = self.state.outcome
        if outcome is not None and outcome.cause.code is Code.AGENT_FAILED:
            return True
        path = self.folder.shown(self.folder.supervisor_log)
        with contextlib.suppress(OSError):
            print(f"the agent on {host} failed:\n{text}", file=sys.stderr)  # noqa: T201
        last = text.strip().rpartition("\n")[2][:MOST_WORDS]
        cause = Cause(Code.AGENT_FAILED, host=host, text=last, path=path)
        self.abort(InternalError(cause=cause))
        return True

    def end_at_once(self, cause: Cause) -> None:
        """Record the end of the job after a defect, without what else belongs to it."""
        outcome = lifecycle.job_failure(InternalError.exit_code, cause)
        event = events.JobEnded(at=time.time(), outcome=outcome)
        with contextlib.suppress(Exception):  # the record may be what has failed
            self.record.write(event)
        self.clients.broadcast(protocol.JobEvent(events.encode(event)))

    def has_own_logs(self, host: str) -> bool:
        """Whether the tasks on a host write their logs there, and see none of this one's files."""
        return self.known is None or self.known.has_own_logs(host)
