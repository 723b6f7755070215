"""The supervisor of one job: it joins the job's state with its hosts and with commands.

Every event goes through :meth:`.RunningJob.emit`: into the record, to the commands that watch, and
through the lifecycle, whose actions are then carried out.
"""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, OpenJob, Report, Request
from distrun.errors import DistrunError, InternalError
from distrun.job import events, held_package
from distrun.job.folder import JobFolder
from distrun.spec.model import Spec
from distrun.supervisor import tensorboard
from distrun.supervisor.advisor import Advisor
from distrun.supervisor.clients import Client, Clients
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.former_hosts import FormerHosts
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.planning import Planning
from distrun.supervisor.running_job import MOST_WORDS, RunningJob
from distrun.supervisor.running_tasks import RunningTasks
from distrun.supervisor.start_queue import StartQueue
from distrun.supervisor.stop_requests import StopRequests
from distrun.supervisor.tensorboard import TensorBoard

if TYPE_CHECKING:
    from distrun.supervisor.results import Results
    from distrun.sync.manifest import Manifest

_ENDING_SECONDS = 3.0
"""How long the end of a job may take after a defect: longer than tasks have after SIGTERM."""
_FLUSH_SECONDS = 2.0
_SAMPLES_SECONDS, _POLL_SECONDS = 5.0, 0.1
"""How long the end waits for the samples of a `distrun profile`, and how often it looks."""


class Supervisor:
    """Owns one job from the creation of its folder until nothing of it is left. Raises OSError.

    Until `launch`, the launch command, detaches, the job ends with it. `manifest`: the files for
    hosts that lack them. `former`: the state of a job that is resumed; None: the job is new.
    """

    _planning: Planning
    """It begins once nothing of earlier attempts is left; before that, no host is connected."""

    def __init__(
        self,
        folder: JobFolder,
        spec: Spec,
        launch: Client,
        order: OpenJob,
        manifest: Manifest | None = None,
        former: lifecycle.JobState | None = None,
    ) -> None:
        self._job = job = RunningJob(folder, spec, former)
        self._spec, self._folder, self._loop, self.emit = spec, folder, job.loop, job.emit
        self._order, self._manifest = order, manifest
        self._former_hosts = FormerHosts(job, self._prepare)
        job.hosts = self._hosts = HostPool(job.loop, spec, folder.job_id, folder.logs, self)
        if folder.descriptor is not None:
            job.hosts.calls.kept = (folder.descriptor,)
        job.clients = self._clients = Clients(
            *(job.loop, folder.listen(), self._on_client, self._on_client_end)
        )
        self._launch: Client | None = launch
        self._clients.add(launch)
        self._clients.watching.add(launch)
        self._tensorboard = TensorBoard(job)
        self._results: Results | None = None
        self._is_finishing = False
        self._sampled_until = 0.0
        self._analyzer = FailureAnalyzer(job)
        self._running = RunningTasks(job, self._analyzer)
        self._stops = StopRequests(job, self._running.note_hang, self._on_stop)
        self._advisor = Advisor(job, self._running)
        self._starts = StartQueue(job, self._running)
        self._loop.watch_signals((signal.SIGCHLD, signal.SIGTERM), self._on_signals)
        job.observers += [
            self._analyzer.on_event,
            self._tensorboard.on_event,
            self._advisor.on_event,
        ]
        job.handlers = {
            lifecycle.StartAttempt: self._starts.start,
            lifecycle.StopTask: self._starts.stop,
            lifecycle.SetTimer: self._set_timer,
            lifecycle.Announce: lambda action: job.emit(action.event),
            lifecycle.MakePlan: lambda action: job.call_after(partial(self._planning.add, action)),
            lifecycle.Finish: lambda _: self._release_hosts(),
        }

    def run(self, early: Sequence[Request]) -> None:
        """Run the job to its end. `early` are requests that its launch command has sent already."""
        self._job.begin(self._order)
        for message in early:
            if self._launch is not None:
                self._on_client(self._launch, message)
        self._former_hosts.clear(self._order.assumed_dead)
        self._finish_if_released()
        while not self._job.state.phase.is_final:
            self._loop.turn()
            self._finish_if_released()
        self._running.close()
        self._close()

    def _close(self) -> None:
        self._hosts.calls.close()
        self._job.record.release_reserve()
        self._folder.stop_listening()
        self._clients.flush(_FLUSH_SECONDS)
        # Commands whose connection has ended must not find the supervisor alive.
        self._folder.release_lock()

    def end_after_defect(self, error: BaseException) -> None:
        """End the job, and its tasks on every host, after an error in :meth:`run`.

        First as after any other failure, so that the record and the logs are complete. If that
        fails, or takes too long, the agents are ordered to end.

        Raises an exception if neither was possible. The processes on this machine are left.
        """
        if self._job.state.phase.is_final:
            return
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        path = self._folder.shown(self._folder.supervisor_log)
        cause = Cause(Code.SUPERVISOR_FAILED, text=text[:MOST_WORDS], path=path)
        try:
            self._end_in_order(cause)
        except BaseException:  # noqa: BLE001 - what has failed may fail again
            with contextlib.suppress(Exception):
                traceback.print_exc()
        if not self._job.state.phase.is_final:
            self._hosts.end_at_once(_ENDING_SECONDS)
            self._job.end_at_once(cause)
        self._close()

    def _end_in_order(self, cause: Cause) -> None:
        """End the job as after another failure, for some seconds at most."""
        deadline = time.monotonic() + _ENDING_SECONDS
        self._job.abort(InternalError(cause=cause))
        if not self._is_finishing:
            self._release_hosts()  # at once: which tasks run may not be known
        self._hosts.abandon_lost()
        self._finish_if_released()
        while not self._job.state.phase.is_final and time.monotonic() < deadline:
            self._loop.turn(deadline - time.monotonic())
            self._finish_if_released()

    # The lifecycle's actions ---------------------------------------------------------------

    def _set_timer(self, action: lifecycle.SetTimer) -> None:
        timer, seconds = action.timer, action.seconds
        if timer == lifecycle.STALL:
            signs = self._running.signs
            signs.stop() if seconds is None else signs.start()
            return
        timers = self._job.timers
        if timer not in timers:
            timers[timer] = self._loop.call_at(None, partial(self._on_timer, timer))
        timers[timer].move(None if seconds is None else self._loop.now() + seconds)

    def _release_hosts(self) -> None:
        if self._running.stacks.commands and not self._job.state.killing:
            now = self._loop.now()  # what was sampled until now will be there soon
            self._sampled_until = self._sampled_until or now + _SAMPLES_SECONDS
            if now < self._sampled_until:
                self._loop.call_at(now + _POLL_SECONDS, self._release_hosts)
                return
        if self._spec.program.results and self._results is None and not self._job.state.killing:
            # Imported here because few jobs have results.
            from distrun.supervisor.results import Results

            hosts = [task.host for task in self._job.state.tasks.values()]
            self._results = Results(self._job, self._on_results)
            if self._results.start(hosts):
                return
        self._is_finishing = True
        self._former_hosts.agents.give_up()
        self._hosts.shut_down()
        if self._job.state.replaces_hosts or self._job.former is not None:
            self._hosts.late_logs.finish()
        if self._job.known is None or not any(map(self._job.has_own_logs, self._job.known.reaches)):
            self._analyzer.find_last()  # while the agents end

    def _on_results(self, event: events.ResultsFetched) -> None:
        self.emit(event)
        self._job.call_after(self._release_hosts)

    def _finish_if_released(self) -> None:
        """End the job once all its agents have ended."""
        if self._job.state.outcome is None or not self._is_finishing or self._hosts:
            return
        if self._analyzer.find_last():  # the logs of other hosts are all here now
            return
        self._running.record_rest()
        self.emit(events.JobEnded(at=time.time(), outcome=self._job.state.outcome))

    # Hosts ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            hosts = JobHosts(
                *(self._spec, self._hosts.order, self._folder.path, self._manifest),
                emit=self.emit,
                has_preflight=self._order.preflight,
            )
        except DistrunError as error:
            self._job.abort(error)
            return
        if self._manifest is not None:
            # Imported here because most jobs have no other hosts.
            from distrun.supervisor.hosts.file_delivery import FileDelivery

            hosts.delivery = FileDelivery(
                *(self._manifest, hosts.hosts_without_files, self._hosts.deliver),
                *(self.emit, self._clients.broadcast),
            )
        self._planning = Planning(self._job, hosts, self._running)
        self._job.known = hosts
        self._hosts.recall_lost(self._job.state.lost_agents, self._spec)
        self._hosts.connect(hosts.reaches)
        self._loop.call_at(self._loop.now() + held_package.AFTER_SECONDS, held_package.hold)

    def on_report(self, host: str, report: Report) -> None:
        if getattr(report, "task", None) == tensorboard.NAME:
            if not self._is_finishing:
                self._tensorboard.receive(report)
            return
        delivery = self._planning.hosts.delivery
        if delivery is not None and delivery.receive(host, report):
            self._planning.advance()
            return
        if isinstance(report, events.Event):
            self._on_task_report(host, report)
        elif isinstance(report, protocol.Fault):
            self._on_fault(host, report)
        elif not self._running.receive(host, report) and self._job.state.outcome is None:
            self._planning.receive(host, report)

    def _on_fault(self, host: str, fault: protocol.Fault) -> None:
        self._planning.leave_out(host, fault.cause)
        self.emit(events.HostFault(at=fault.at, host=host, cause=fault.cause))
        self._job.abort_by_agent(host, fault.cause)
        if self._job.state.outcome is None and self._job.state.replaces_hosts:
            # Its tasks restart elsewhere once nothing of them is left.
            self._hosts.order(host, protocol.Shutdown())
        self._planning.restart(host)

    def _on_task_report(self, host: str, report: events.Event) -> None:
        if isinstance(report, protocol.TaskExited):
            self._running.end(report.task, report)
        elif not isinstance(report, protocol.NOTICES) or self._running.is_on(host, report):
            if isinstance(report, protocol.ChildrenFail):
                if self._job.state.tasks[report.task].first_step_at is not None:
                    return  # it works nevertheless
                self._running.note_failing_children(report.task)
            self.emit(report)
        if isinstance(report, (protocol.TaskStarted, protocol.TaskNotStarted)):
            self._starts.on_answer(host, report.task)
        if isinstance(report, protocol.TaskStarted):
            self._running.start(report)

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        if self._job.state.outcome is not None:
            return
        if not any(self._job.abort_by_agent(host, cause) for host, cause in causes.items()):
            self._planning.on_unreachable(causes)

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.HostLost):
            self._starts.remove_host(event.host)
            if self._is_finishing and event.cause.code is not Code.PROCESSES_NOT_ENDED:
                return
            self._job.abort_by_agent(event.host, event.cause)
            self._planning.on_lost(event.host, event.cause)
        self.emit(event)
        if isinstance(event, (events.HostLost, events.LinkLost)):
            self._job.call_after(partial(self._after_loss, event))

    def _after_loss(self, event: events.HostLost | events.LinkLost) -> None:
        self._planning.restart(event.host)
        if self._job.state.killing and isinstance(event, events.LinkLost):
            self._hosts.abandon_lost()

    # Waiting -------------------------------------------------------------------------------

    def _on_timer(self, timer: events.Timer) -> None:
        within: tuple[Cause, ...] = ()
        if timer == lifecycle.START and self._job.known is not None:
            within = self._planning.why_waiting() or self._running.why_not_ready()
        self.emit(events.TimedOut(at=time.time(), timer=timer, within=within))

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stops.on_sigterm()
        self._hosts.check_exits()

    # Commands ------------------------------------------------------------------------------

    def _on_client(self, client: Client, message: Request) -> None:
        if isinstance(message, protocol.StopJob):
            self._stops.receive(message)
        elif isinstance(message, protocol.Detach) and client is self._launch:
            self._launch = None
            held_package.hold()
        elif isinstance(message, protocol.TakeStacks):
            self._running.stacks.answer_command(message, client)
        elif isinstance(message, protocol.Watch):
            self._clients.watching.add(client)
            for progress in self._running.progress:
                client.send(progress)
            client.send(protocol.WatchStarted())

    def _on_client_end(self, client: Client) -> None:
        if client is self._launch:
            self._launch = None
            self._stops.on_launch_end()
        self._running.stacks.forget(client)

    def _on_stop(self) -> None:
        self._former_hosts.agents.stop(at_once=self._job.state.killing)
        if self._job.state.killing and self._results is not None:
            self._results.stop()
