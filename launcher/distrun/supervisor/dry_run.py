"""Prepares the hosts of a job with real agents but starts no task, for `plan` and `doctor`."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code, Report
from distrun.errors import HostError, InvalidSpecError, UsageError
from distrun.job import events
from distrun.plan import Plan
from distrun.spec.model import Spec
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.round import Round, is_awaited

_JOB_ID = "plan"
_LEAVE_SECONDS = 0.5
"""How long hosts may take to say that they have ended, after a signal."""


def make_plan(spec: Spec, left_out: dict[str, Cause] | None = None) -> Plan:
    """Return the plan that a launch would run; `left_out` receives why spares cannot be used.

    Raises HostError: a host cannot be used; UsageError: it would create pods; or InvalidSpecError.
    """
    if any(host.pod for host in spec.hosts):
        what = "a job in pods has a plan of its tasks once the pods run"
        raise UsageError(what, hint="`distrun plan SPEC` shows the manifest of its pods")
    made = _run(spec)
    if made.error is not None:
        raise made.error
    if made.plan is None:
        raise HostError(cause=Cause(Code.NO_HOST_ANSWERED))
    if left_out is not None:
        left_out.update(made.hosts.left_out)
    return made.plan


def check_hosts(
    spec: Spec, records: Path, tick: Callable[[Round], float | None], *, measures: bool = False
) -> Round:
    """Connect the hosts and check them as a launch does. Hosts that cannot be used are left out.

    `records`: the folder of the jobs' records. `tick`: called before each wait; returns how long to
    wait at most, in seconds, or None. Raises InvalidSpecError.
    """
    made = _run(spec, records, tick, measures=measures)
    if isinstance(made.error, InvalidSpecError):
        raise made.error
    return made


def _run(
    spec: Spec,
    records: Path | None = None,
    tick: Callable[[Round], float | None] = lambda _: None,
    *,
    measures: bool = False,
) -> Round:
    """Run the first round of a job. With `records`, all hosts are checked."""
    use = "plan" if records is None else "doctor"
    with tempfile.TemporaryDirectory(prefix=f"distrun-{use}-{os.getpid()}-") as folder:
        dry_run = DryRun(spec, Path(folder), records, tick, measures=measures)
        dry_run.run()
    return dry_run.round


class DryRun:
    """Prepares the hosts, then releases them. `logs`: an empty folder for this machine's agent."""

    def __init__(
        self,
        spec: Spec,
        logs: Path,
        records: Path | None,
        tick: Callable[[Round], float | None],
        *,
        measures: bool,
    ) -> None:
        self._tick, checks_all = tick, records is not None
        self._is_releasing = False
        self._seconds = spec.timeouts.start
        if self._seconds is not None and measures:
            from distrun.supervisor.probe import longest_measuring

            self._seconds += longest_measuring(len(spec.hosts))
        self._loop = Loop()
        self._loop.watch_signals((signal.SIGCHLD,), lambda _: self._pool.check_exits())
        self._pool = HostPool(self._loop, spec, _JOB_ID, logs, self)
        folder = records or logs
        hosts = JobHosts(spec, self._pool.order, folder, checks_all=checks_all, measures=measures)
        self.round = Round(hosts)

    def run(self) -> None:
        """Prepare the hosts until they are ready or one fails; the result is :attr:`round`.

        Raises a signal's exception, such as KeyboardInterrupt, once the hosts are released, or
        after half a second: an agent ends with its link.
        """
        try:
            self._wait_for_answers()
            self._pool.connect(self.round.hosts.reaches)
            self._run_until_released()
        except BaseException:
            self._release()
            self._run_until_released(time.monotonic() + _LEAVE_SECONDS)
            raise
        finally:
            # Python would print that it cannot write to the pipe, once this object is gone.
            signal.set_wakeup_fd(-1)

    def _run_until_released(self, deadline: float = math.inf) -> None:
        while self._pool and time.monotonic() < deadline:
            if self.round.is_finished and not self._is_releasing:
                self._release()
            tick = self._tick(self.round)
            longest = _LEAVE_SECONDS if self._is_releasing else None
            self._loop.turn(longest if tick is None else min(tick, longest or tick))

    def _wait_for_answers(self) -> None:
        if self._seconds is not None:
            self._loop.call_at(self._loop.now() + self._seconds, self._fail_unanswered)

    def _fail_unanswered(self) -> None:
        """Continue without the hosts that a launch would not wait for any longer, or end."""
        if self._is_releasing:
            return
        self._wait_for_answers()
        seconds = self._seconds or 0.0
        for host, cause in self._pool.unanswered(self.round.waiting_for, seconds).items():
            self._fail(host, cause)

    def _release(self) -> None:
        self._is_releasing = True
        self._pool.shut_down()

    # Events of the pool --------------------------------------------------------------------

    def on_report(self, host: str, report: Report) -> None:
        if self._is_releasing:
            return
        if isinstance(report, protocol.Fault):
            self._fail(host, report.cause)
            return
        if isinstance(report, protocol.Hello):
            self.round.hosts.add_hello(host, report)
        self.round.receive(host, report)

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        if not self._is_releasing:
            awaited = [host for host, cause in causes.items() if is_awaited(cause)]
            self._pool.connect({host: self.round.hosts.reconnect(host) for host in awaited})
            self.round.on_unreachable({each: causes[each] for each in causes.keys() - {*awaited}})

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.HostLost) and not self._is_releasing:
            self._fail(event.host, event.cause)

    def _fail(self, host: str, cause: Cause) -> None:
        self.round.fail(host, Cause(Code.HOST_NOT_PREPARED, host=host, within=(cause,)))
