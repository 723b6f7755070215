"""The job that a supervisor runs: its state, which events alone change, and what all parts use."""

from __future__ import annotations

import _thread  # not threading, whose threads keep a process from being forked
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.linux.regular import closing
from distrun.agent.loop import Handle, Loop
from distrun.agent.protocol import Cause, Code
from distrun.errors import DistrunError, HostError, InternalError
from distrun.job import events, record
from distrun.job.folder import JobFolder
from distrun.plan import TaskPlan
from distrun.spec.model import Spec
from distrun.strategies import Workers
from distrun.supervisor.clients import Clients
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.job_hosts import JobHosts

MOST_WORDS = 200
"""Characters of an error in the cause of the job's end."""
_SYNC_SECONDS = 10.0
"""How long the end of a job waits for a slow disk. Nothing of the job runs then."""


class EventQueue:
    """Calls `handle` with each event. What it adds meanwhile waits until it has returned."""

    def __init__(self, handle: Callable[[events.Event], None]) -> None:
        self._handle = handle
        self._events: deque[events.Event] = deque()
        self._postponed: deque[Callable[[], None]] = deque()
        self._is_handling = False
        self._is_calling = False

    def add(self, event: events.Event) -> None:
        """Handle an event: at once, or after those that are waiting."""
        self._events.append(event)
        self._run()

    def add_first(self, *first: events.Event) -> None:
        """Have events handled next, before those that are waiting. `handle` may call this."""
        self._events.extendleft(reversed(first))

    def call_after(self, function: Callable[[], None]) -> None:
        """Call a function that reads the state, and may add events: once no event waits."""
        self._postponed.append(function)
        self._run()

    def _run(self) -> None:
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False
        if self._is_calling:
            return
        self._is_calling = True
        try:
            while self._postponed:
                self._postponed.popleft()()
        finally:
            self._is_calling = False


def _sync(paths: Iterable[str], done: _thread.LockType) -> None:
    """Write files, and the names in folders, to the disk, one after another."""
    for path in paths:
        try:
            with closing(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
                os.fsync(descriptor)
        except FileNotFoundError:
            continue  # not every job has every file
        except OSError as error:
            _say(f"the record may not be on disk: {error}")
    done.release()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # its log is on the same disk
        print(text, file=sys.stderr)  # noqa: T201


class JobRecord:
    """The record of one job, perhaps that of an earlier supervisor. Raises OSError."""

    def __init__(self, folder: JobFolder, *, is_resumed: bool) -> None:
        self._folder = folder
        self._log = record.EventLog(str(folder.events_file))
        self._syncing: list[_thread.LockType] = []
        """Of each thread that syncs files, what it releases at its end."""
        self._error: OSError | None = None
        if is_resumed:
            self._log.require_space()
            folder.absorb_unsent_reports(self._log)

    def write(self, event: events.Event) -> dict[str, Any] | None:
        """Append an event, and return it as written.

        None: that failed for the first time, and the event is to follow :attr:`failure`.
        """
        try:
            written = self._log.append(event)
        except OSError as error:
            _say(f"the record cannot be written: {error}")
            if self._error is not None:
                return events.encode(event)
            self._error = error
            return None
        self._sync(event)
        return written

    def release_reserve(self) -> None:
        self._log.release_reserve()

    @property
    def failure(self) -> events.Aborted:
        """The job's end because an event could not be written."""
        path = self._folder.shown(self._folder.events_file)
        errno = 0 if self._error is None else self._error.errno or 0
        cause = Cause(Code.RECORD_NOT_WRITTEN, path=path, errno=errno, name="DISTRUN_HOME")
        return events.Aborted(at=time.time(), cause=cause, exit_code=HostError.exit_code)

    def _sync(self, event: events.Event) -> None:
        """Sync the plan, verdicts and the end of the job, before the end is reported.

        A disk may take seconds, in which hosts must hear of this process: a thread waits for it.
        """
        is_end = isinstance(event, events.JobEnded)
        if not (is_end or isinstance(event, (events.JobPlanned, events.VerdictReached))):
            return
        is_plan = isinstance(event, events.JobPlanned)
        paths = self._folder.lasting_files() if is_plan else [str(self._folder.events_file)]
        done = _thread.allocate_lock()
        done.acquire()
        try:
            _thread.start_new_thread(_sync, (tuple(paths), done))
        except RuntimeError:  # a limit on processes
            _sync(paths, done)
        self._syncing = [each for each in self._syncing if each.locked()] + [done]
        deadline = time.monotonic() + _SYNC_SECONDS
        for each in self._syncing if is_end else ():
            if not each.acquire(timeout=max(0.0, deadline - time.monotonic())):
                _say(f"the record may not be on disk: it has not finished in {_SYNC_SECONDS:g} s")
                break


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
        _say(f"the agent on {host} failed:\n{text}")
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
