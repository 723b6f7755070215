"""Requests to stop a job: by a command, by a signal, or by the end of its launch command."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.errors import EXIT_KILLED
from distrun.job.stop_order import event_of
from distrun.supervisor.running_job import RunningJob

_SAME_REQUEST_SECONDS = 1.0
_LAUNCH_SECONDS = 5.0
_BY_PERSONS = (128 + signal.SIGINT, EXIT_KILLED)
"""The exit codes of jobs that Ctrl-C or `distrun kill` stops: perhaps because they hang."""


class StopRequests:
    """Stops a job once for each request, and calls `on_stop`; before, `note_hang`, if asked to.

    Slurm sends SIGTERM to all processes of a step at once, the launch command's and this one: that
    is one request, and a second one would kill the job.
    """

    def __init__(
        self, job: RunningJob, note_hang: Callable[[], object], on_stop: Callable[[], object]
    ) -> None:
        self._job, self._note_hang, self._on_stop = job, note_hang, on_stop
        self._last_at = -_LAUNCH_SECONDS
        self._was_signalled = False

    def on_sigterm(self) -> None:
        """Stop the job after SIGTERM, unless somebody has it stopped meanwhile."""
        if not self._is_last_within(_SAME_REQUEST_SECONDS):
            cause = Cause(Code.SUPERVISOR_SIGNALLED, signal=signal.SIGTERM)
            self._was_signalled, self._last_at = True, time.monotonic()
            self._job.hosts.find_interruption(cause, partial(self._on_reason, self._last_at))

    def _on_reason(self, at: float, cause: Cause) -> None:
        if at == self._last_at:
            order = protocol.StopJob(cause, signal.SIGTERM, None, 128 + signal.SIGTERM)
            self._stop(order, is_signal=True)

    def on_launch_end(self) -> None:
        cause = Cause(Code.LAUNCH_COMMAND_DIED)
        self.receive(protocol.StopJob(cause, signal.SIGTERM, protocol.KILL_GRACE, 129))

    def receive(self, order: protocol.StopJob) -> None:
        is_of_launch = order.exit_code == 128 + signal.SIGTERM
        if not (is_of_launch and self._was_signalled and self._is_last_within(_LAUNCH_SECONDS)):
            self._stop(order, is_signal=False)

    def _is_last_within(self, seconds: float) -> bool:
        """Whether the last request was so many seconds ago at most."""
        return time.monotonic() - self._last_at < seconds

    def _stop(self, order: protocol.StopJob, *, is_signal: bool) -> None:
        job = self._job
        self._was_signalled, self._last_at = is_signal, time.monotonic()
        if order.exit_code in _BY_PERSONS and job.state.outcome is None:
            self._note_hang()
        requested = event_of(order, job.spec.timeouts.grace)
        job.emit(requested)
        job.hosts.limit_ends(0.0 if job.state.killing else requested.grace)
        if job.state.killing:
            job.hosts.abandon_lost()
        self._on_stop()
