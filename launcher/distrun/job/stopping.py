"""A job that a person stops: what its end waits for, and what is left of it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

from distrun.agent.protocol import (
    KILL_GRACE,
    Cause,
    JobEvent,
    Notice,
    StopJob,
    Watch,
    WatchStarted,
)
from distrun.errors import DistrunError
from distrun.job import control, events, leftovers, queued_job
from distrun.job.control import SupervisorChannel
from distrun.job.folder import JobFolder
from distrun.job.stop_order import grace_of
from distrun.words.causes import cause_text
from distrun.words.events import event_text
from distrun.words.formats import format_count, format_host_names, format_names

_QUIET_SECONDS = 3.0
"""After this time, `kill` shows what it waits for."""
_ANSWER_SECONDS = 10.0
"""How long a supervisor may take to answer: a busy machine may delay it by seconds."""


class StoppedJob:
    """One job that is stopped. Create it before the job is asked to stop.

    `say` is called with what its end waits for, and how it ended; `on_error` with what was not
    ended, or could not be verified.
    """

    def __init__(
        self,
        folder: JobFolder,
        order: StopJob,
        *,
        say: Callable[[str], None] = lambda _: None,
        on_error: Callable[[DistrunError], None],
    ) -> None:
        state = folder.state()
        self.folder, self._job_id = folder, folder.job_id
        self.has_ended_now = False
        """Whether this has ended it."""
        self._order, self._say, self._on_error = order, say, on_error
        self._longest = grace_of(order, state.timeouts.grace)
        self._channel: SupervisorChannel | None = None
        self._is_queued = folder.is_elsewhere
        self._had_ended = state.phase.is_final
        # The folder may be gone when the supervisor has ended.
        self._traces = folder.traces(state)
        self._has_answered = False
        """Whether the supervisor has answered the last request to watch."""
        self._lease = state.timeouts.link
        # On the second request, the supervisor no longer waits for hosts without a link timeout.
        self._waits_for_hosts = state.outcome is None or self._lease is not None
        self._said: set[str] = set()
        self._cut_off = [each.name for each in state.hosts.values() if each.link_lost is not None]

    def ask(self) -> None:
        if not self._is_queued:
            control.resume_supervisor(self.folder)
            self._channel = control.connect(self.folder)
        if self._is_queued or self._channel is not None:  # else they are tried again
            for host in self._cut_off:
                self._say_lost(host)
        if self._channel is not None:
            control.request_stop(self._channel, self._order)

    def wait(self) -> None:
        """Wait until nothing of the job is left. `on_error` gets what cannot be verified.

        Raises:
            DistrunError: its supervisor, or its scheduler, does not answer or does not end it.
        """
        if self._is_queued:
            self.has_ended_now = queued_job.stop(self.folder, self._order, self._say)
            return
        if self._channel is not None:
            with contextlib.closing(self._channel):
                self._wait_for_end(self._channel)
            control.require_supervisor_ended(self.folder, self._channel)
            unended = leftovers.unended_error(self.folder, self.folder.state())
            if unended is not None:
                raise unended
        self._verify()

    def _wait_for_end(self, channel: SupervisorChannel) -> None:
        """Wait for the job's end, and show what it waits for.

        Raises:
            InternalError: the supervisor lives, and does not answer after the time of a stop.
        """
        first = (_QUIET_SECONDS, self._longest + KILL_GRACE + _ANSWER_SECONDS)
        for number, seconds in enumerate(itertools.chain(first, itertools.repeat(_ANSWER_SECONDS))):
            for message in control.notices(channel, seconds):
                self._on_message(message)
            if channel.ended:
                return
            if number and not self._has_answered:
                raise control.unanswered(self.folder)
            self._say_waiting()
            if number:
                self._has_answered = False
                channel.send(Watch())

    def _verify(self) -> None:
        folder, job = self.folder, f"job {self.folder.job_id}"
        if not folder.path.exists():
            leftovers.end_here(self._traces)
            raise control.removed_error(folder)
        is_by_supervisor = self._channel is not None and folder.state().phase.is_final
        found = leftovers.end(
            folder, self._order.cause, self._say_delay, has_just_ended=is_by_supervisor
        )
        is_lost = not (is_by_supervisor or self._had_ended)
        count = f"ended {format_count(found.count, 'process')} of the job"
        if self._channel is None and self._had_ended:
            said = f"{job} had already {found.state.phase.value}"
        elif is_by_supervisor:
            said = f"{job} has ended"
        else:
            said = f"the supervisor of {job} {'had died' if self._channel is None else 'died'}"
        where = f"nothing is left on {format_host_names(found.hosts)}" if found.hosts else ""
        for error in found.errors:
            self._on_error(error)
        if found.own:
            pids = " ".join(map(str, found.own))
            self._say(f"{job}: processes of distrun, which run no task, remain: {pids}")
        if found.errors and is_by_supervisor:
            said = f"{job} has ended on the other hosts"
        self._say("; ".join(filter(None, (said, count if found.count or is_lost else "", where))))
        self.has_ended_now = is_by_supervisor

    def _say_delay(self, host: str, cause: Cause) -> None:
        self._say(f"job {self._job_id}: waiting for {host}: {cause_text(cause)}")

    def _say_waiting(self) -> None:
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
            what = f"its supervisor ({self.folder.supervisor_place}), which has not answered yet"
        line = f"job {self._job_id}: waiting for {what}"
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def _on_message(self, message: Notice) -> None:
        if isinstance(message, WatchStarted):
            self._has_answered = True
        event = events.decode(message.event) if isinstance(message, JobEvent) else None
        if isinstance(event, events.LinkLost):
            self._say_lost(event.host)
        elif isinstance(event, events.LogsIncomplete):
            self._say(event_text(event) or "")

    def _say_lost(self, host: str) -> None:
        if host in self._said or not self._waits_for_hosts:
            return
        self._said.add(host)
        if self._lease is None:
            how = f"to stop waiting for it: distrun kill {self._job_id}"
        else:
            how = f"its tasks end by themselves after {self._lease:g} s (timeouts.link)"
        self._say(f"{host} cannot be reached; {how}")
