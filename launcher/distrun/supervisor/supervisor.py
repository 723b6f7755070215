"""The supervisor of one job: its record, its state, its hosts, and the loop that joins them.

Every event goes through :meth:`Supervisor.emit`: into the record, to the commands that watch, and
through the lifecycle, whose actions are then carried out, one event after another. Nothing is
polled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.loop import Loop
from distrun.agent.protocol import Cause, Code
from distrun.codec import from_json, to_json
from distrun.errors import DistrunError, HostError, InternalError
from distrun.frozen import replace
from distrun.job import events, held_package
from distrun.job.folder import replace_file
from distrun.plan import READ
from distrun.strategies import Workers
from distrun.supervisor import tensorboard
from distrun.supervisor.clients import Client, Clients
from distrun.supervisor.event_queue import EventQueue
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.former_agents import FormerAgents, find_former_agents
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.job_hosts import JobHosts, planned_task
from distrun.supervisor.job_record import JobRecord
from distrun.supervisor.planning import Planning
from distrun.supervisor.running_tasks import RunningTasks
from distrun.supervisor.start_queue import StartQueue
from distrun.supervisor.tensorboard import TensorBoard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distrun.agent.loop import Handle
    from distrun.agent.protocol import Report, Request
    from distrun.job.folder import JobFolder
    from distrun.plan import Plan, TaskPlan
    from distrun.spec.model import Spec
    from distrun.supervisor.hosts.former_agents import FormerAgent
    from distrun.supervisor.results import Results
    from distrun.supervisor.stack_collector import Stacks
    from distrun.sync.manifest import Manifest

_ENDING_SECONDS = 3.0
"""How long the end of a job may take after a defect: longer than tasks have after SIGTERM."""
_MOST_WORDS = 200
"""Characters of an error in the cause of the job's end."""
_FLUSH_SECONDS = 2.0
_SAME_REQUEST_SECONDS = 1.0
_LAUNCH_SECONDS = 5.0
_OBSERVATIONS = (
    *(protocol.Progress, protocol.ProgressIgnored, protocol.TaskListening, protocol.UsageSampled),
)


class Supervisor:
    """Owns one job from the creation of its folder until nothing of it is left.

    Args:
        launch: the launch command; until it detaches, the job ends with it.
        cause_text: returns a cause in words, for the line in a log where a restart begins.
        manifest: the program's files, for the hosts that lack them; None: nothing is sent.
        preflight: whether hosts that need it are checked before the first task starts.
        former: the state of a job that is resumed; None: the job is new.
        changes: the `--set` of a job that is resumed.
        assumed_dead: the hosts of which a person says that nothing of earlier attempts runs there.
        versions: of what is installed on this machine, for the record.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(  # noqa: PLR0913 - what a launch or a resume decides
        self,
        folder: JobFolder,
        spec: Spec,
        launch: Client,
        cause_text: Callable[[Cause], str],
        *,
        manifest: Manifest | None,
        preflight: bool,
        former: lifecycle.JobState | None = None,
        changes: tuple[str, ...] = (),
        assumed_dead: tuple[str, ...] = (),
        versions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._versions = dict(versions)
        self._spec = spec
        self._cause_text = cause_text
        self._loop = Loop()
        self._last_change = 0.0 if former is None else folder.last_change()
        self._record = JobRecord(folder, is_resumed=former is not None)
        self._events = EventQueue(self._handle)
        self._state = lifecycle.JobState()
        self._former = former
        self._changes = changes
        self._assumed_dead = assumed_dead
        self._former_agents = FormerAgents(self._on_cleared, self._on_not_cleared)
        if former is not None:
            self._state = former
        self._timers: dict[events.Timer, Handle] = {}
        self._hosts = HostPool(
            *(self._loop, spec, folder.job_id, folder.logs, READ, self),
        )
        if folder.descriptor is not None:
            self._hosts.inquiries.kept = (folder.descriptor,)
        self._planning: Planning | None = None
        """None: it is being made sure that nothing of earlier attempts is left."""
        self._manifest = manifest
        self._has_preflight = preflight
        self._tasks: dict[str, TaskPlan] = {}
        self._starts = StartQueue(self._send_start)
        self._tensorboard: TensorBoard | None = None
        self._is_finishing, self._stop_requested_at = False, -_LAUNCH_SECONDS
        self._was_signalled = False
        """Whether the last request to stop was a signal to this process."""
        self._analyzer = FailureAnalyzer(folder, spec, self._hosts.inquiries, self.emit)
        self._clients = Clients(self._loop, folder.listen(), self._on_client, self._on_client_end)
        self._launch: Client | None = launch
        self._clients.add(launch)
        self._clients.watching.add(launch)
        self._loop.watch_signals((signal.SIGCHLD, signal.SIGTERM), self._on_signals)
        self._results: Results | None = None
        self._running = RunningTasks(
            *(self._loop, folder, spec, self._hosts, self._analyzer),
            state=lambda: self._state,
            emit=self.emit,
            broadcast=self._clients.broadcast,
            has_own_files=self._has_own_files,
        )
        if former is not None:
            self._running.training.resume(former, self._last_change)

    def run(self, early: Sequence[Request]) -> None:
        """Run the job to its end. `early` are requests that its launch command has sent already."""
        self.emit(self._first_event())
        for message in early:
            if self._launch is not None:
                self._on_client(self._launch, message)
        self._clear_former_hosts()
        self._finish_if_released()
        while not self._state.phase.is_final:
            self._loop.turn()
            self._finish_if_released()
        self._running.close()
        self._close()

    def _close(self) -> None:
        self._hosts.inquiries.close()
        self._record.release_reserve()
        self._folder.stop_listening()
        self._clients.flush(_FLUSH_SECONDS)
        # Commands whose connection has ended must not find the supervisor alive.
        self._folder.release_lock()

    def end_after_defect(self, error: BaseException) -> None:
        """End the job, and its tasks on every host, after an error in :meth:`run`.

        First as after any other failure, so that the record and the logs are complete. If that
        fails, too, or takes too long, the agents are told to end, and nothing else is done.

        Raises:
            Exception: neither was possible. The processes on this machine are left.
        """
        if self._state.phase.is_final:
            return
        cause = self._defect(error)
        try:
            self._end_in_order(cause)
        except BaseException:  # noqa: BLE001 - what has failed may fail again
            with contextlib.suppress(Exception):
                traceback.print_exc()
        if not self._state.phase.is_final:
            self._hosts.end_at_once(_ENDING_SECONDS)
            self._end_record(cause)
        self._close()

    def _defect(self, error: BaseException) -> Cause:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        path = self._folder.shown(self._folder.supervisor_log)
        return Cause(Code.SUPERVISOR_FAILED, text=text[:_MOST_WORDS], path=path)

    def _end_in_order(self, cause: Cause) -> None:
        """End the job as after another failure, for some seconds at most."""
        deadline = time.monotonic() + _ENDING_SECONDS
        self._abort(InternalError(cause=cause))
        if not self._is_finishing:
            self._release_hosts()  # at once: which tasks run may not be known
        self._hosts.abandon_lost()
        self._finish_if_released()
        while not self._state.phase.is_final and time.monotonic() < deadline:
            self._loop.turn(deadline - time.monotonic())
            self._finish_if_released()

    def _end_record(self, cause: Cause) -> None:
        """Record the end of the job without what else belongs to it."""
        outcome = events.Outcome(
            result=events.Result.FAILED,
            exit_code=InternalError.exit_code,
            origin=events.Origin.DISTRUN,
            cause=cause,
        )
        event = events.JobEnded(at=time.time(), outcome=outcome)
        self._record.write_last(event)
        self._clients.broadcast(protocol.JobEvent(events.encode(event)))

    def _first_event(self) -> events.Event:
        spec = self._spec
        settings: dict[str, Any] = {
            "at": time.time(),
            "job_id": self._folder.job_id,
            "name": spec.name,
            "strategy": spec.strategy,
            "success": spec.success,
            "strict": spec.strict,
            "versions": self._versions,
            "spec_file": self._folder.shown(self._folder.spec_file),
            "supervisor_pid": os.getpid(),
            "timeouts": spec.timeouts,
            "restart": spec.restart,
            "workers": spec.workers or Workers.COORDINATED,
            "log_max_size": spec.log_max_size,
            "role_restarts": {
                role.role.value: role.restart for role in spec.roles if role.restart is not None
            },
        }
        if self._former is None or not self._former.supervisor_pid:  # it was only queued
            return events.JobCreated(**settings)
        down = max(0.0, time.time() - self._last_change)
        return events.JobResumed(**settings, changes=self._changes, down=down)

    def emit(self, event: events.Event) -> None:
        """Record an event and perform the actions that follow from it.

        An event of which that is the consequence waits until all of these are performed.
        """
        self._events.add(event)

    def _handle(self, event: events.Event) -> None:
        written = self._record.write(event)
        if written is None:
            self._events.add_first(self._record.failure, event)
            return
        self._clients.broadcast(protocol.JobEvent(written))
        before = self._state
        self._state, actions = lifecycle.step(before, event)
        self._analyzer.on_event(before, event, self._state)
        if isinstance(event, events.JobPlanned) and self._tensorboard is None:
            self._events.call_after(self._start_tensorboard)
        for action in actions:
            self._perform(action)
        canceled = self._starts.pop_canceled()
        if canceled:
            self.emit(events.StartsCanceled(at=time.time(), tasks=canceled))

    # The lifecycle's actions ---------------------------------------------------------------

    def _perform(self, action: lifecycle.Action) -> None:
        if isinstance(action, lifecycle.StartTask):
            self._running.expect(self._tasks[action.task])
            self._starts.add(self._tasks[action.task].host, action)
        elif isinstance(action, lifecycle.StopTask):
            host = self._state.tasks[action.task].host
            if not self._starts.cancel(host, action.task):
                order = protocol.StopTask(**vars(action))
                self._hosts.order(host, order)
        elif isinstance(action, (lifecycle.SetTimer, lifecycle.CancelTimer)):
            self._set_timer(action)
        elif isinstance(action, lifecycle.Announce):
            self.emit(action.event)
        elif isinstance(action, lifecycle.MakePlan):
            if self._planning is not None:
                self._events.call_after(partial(self._planning.add, action))
        else:
            self._release_hosts()

    def _set_timer(self, action: lifecycle.SetTimer | lifecycle.CancelTimer) -> None:
        timer = action.timer
        seconds = action.seconds if isinstance(action, lifecycle.SetTimer) else None
        if timer == lifecycle.STALL:
            self._running.watch_stall(is_training=seconds is not None)
            return
        if timer not in self._timers:
            self._timers[timer] = self._loop.call_at(None, partial(self._on_timer, timer))
        self._timers[timer].move(None if seconds is None else self._loop.now() + seconds)

    def _release_hosts(self) -> None:
        if self._spec.program.results and self._results is None and not self._state.killing:
            # Imported here because few jobs have results.
            from distrun.supervisor.results import Results

            hosts = [task.host for task in self._state.tasks.values()]
            self._results = Results(
                *(self._loop, self._hosts.inquiries, self._folder, self._spec),
                *(self._on_results, self._clients.broadcast),
            )
            if self._results.start(hosts):
                return
        self._is_finishing = True
        self._former_agents.give_up()
        self._hosts.shut_down()
        may_have_lost = self._state.replaces_hosts or self._former is not None
        if may_have_lost and not self._state.killing:
            self._hosts.finish_late_logs()
        if self._planning is None or self._planning.hosts.has_all_logs_here:
            self._analyzer.find_last(self._state)  # while the agents end

    def _on_results(self, event: events.ResultsFetched) -> None:
        self.emit(event)
        self._events.call_after(self._release_hosts)

    def _send_start(self, start: lifecycle.StartTask) -> None:
        if self._planning is not None:
            task, job_id = self._tasks[start.task], self._folder.job_id
            words = "" if start.cause is None else self._cause_text(start.cause)
            order = self._planning.hosts.start_order(task, job_id, start.attempt, words)
            self._hosts.order(task.host, order)

    def _finish_if_released(self) -> None:
        """End the job once all its agents have ended."""
        if self._state.outcome is None or not self._is_finishing or self._hosts:
            return
        if self._analyzer.find_last(self._state):  # the logs of other hosts are all here now
            return
        self._running.record_rest()
        self.emit(events.JobEnded(at=time.time(), outcome=self._state.outcome))

    # Hosts ---------------------------------------------------------------------------------

    def _clear_former_hosts(self) -> None:
        """Make sure that nothing of earlier attempts is left anywhere, then prepare the hosts."""
        if not self._state.former_hosts or self._former is None:
            if self._state.outcome is None:
                self._prepare()
            return
        links = self._hosts.links
        agents = find_former_agents(links, self._spec, self._former, self._state, self._folder)
        assumed = [each for each in agents if each.name in self._assumed_dead]
        self._former_agents.clear([each for each in agents if each not in assumed])
        names = {agent.name for agent in agents}
        # What ran on this machine has ended already.
        for host in [each for each in self._state.former_hosts if each not in names]:
            self._note_cleared(host)
        for agent in assumed:
            agent.failure = Cause(Code.FORMER_HOST_ASSUMED_DEAD)
            self._on_cleared(agent)

    def _on_cleared(self, agent: FormerAgent) -> None:
        if agent.error is not None:
            self._former_agents.give_up()
            self._abort(HostError(cause=agent.error))
            return
        if (lost := agent.lost_logs) is not None:
            self.emit(events.LogsIncomplete(at=time.time(), host=agent.name, cause=lost))
        if (preserved := agent.preserved) is not None:
            self.emit(events.FilesPreserved(host=agent.name, **preserved._asdict()))
        received = {} if agent.failure is None else agent.mirror.received
        if agent.failure is not None and self._former is not None:
            tasks = self._former.tasks.values()
            left = {task.name: task.attempt for task in tasks if task.host == agent.name}
            self._hosts.note_former(agent.name, left)
        self._note_cleared(agent.name, agent.failure, received)

    def _note_cleared(
        self, host: str, cause: Cause | None = None, received: Mapping[str, int] | None = None
    ) -> None:
        received = dict(received or {})
        self.emit(events.HostCleared(at=time.time(), host=host, cause=cause, received=received))
        if not self._state.former_hosts and self._state.outcome is None:
            self._prepare()

    def _on_not_cleared(self, agent: FormerAgent, cause: Cause) -> None:
        left = agent.lease_left
        self.emit(events.HostNotCleared(at=time.time(), host=agent.name, cause=cause, seconds=left))

    def _prepare(self) -> None:
        try:
            folder, has_preflight = self._folder.path, self._has_preflight
            hosts = JobHosts(
                self._spec, self._hosts.order, folder, emit=self.emit, has_preflight=has_preflight
            )
        except DistrunError as error:
            self._abort(error)
            return
        if self._manifest is not None:
            from distrun.supervisor.hosts.file_delivery import FileDelivery

            lacking, send_list = hosts.hosts_without_files, self._hosts.deliver
            delivery = FileDelivery(
                self._manifest, lacking, send_list, self.emit, self._clients.broadcast
            )
            hosts.deliver(delivery, self._manifest)
        self._planning = Planning(
            *(self._loop, self._hosts, hosts, self._running.training),
            state=lambda: self._state,
            start_left=self._start_left,
            emit=self.emit,
            use_plan=self._use_plan,
            abort=self._abort,
        )
        self._hosts.recall_lost(self._state.lost_agents, self._spec)
        self._hosts.connect(hosts.reaches)
        with contextlib.suppress(OSError):  # too few descriptors: the tasks' start says so
            held_package.hold()  # while the agents start

    def _abort(self, error: DistrunError) -> None:
        self.emit(events.Aborted(at=time.time(), cause=error.as_cause(), exit_code=error.exit_code))

    def on_report(self, host: str, report: Report) -> None:
        if getattr(report, "task", None) == tensorboard.NAME:
            if self._tensorboard is not None and not self._is_finishing:
                self._tensorboard.receive(report)
            return
        planning = self._planning
        if planning is None or self._is_of_former_host(host, report):
            return
        if planning.hosts.delivery is not None and planning.hosts.delivery.receive(host, report):
            planning.advance()
            return
        if isinstance(report, events.Event):
            self._on_task_report(host, report)
        elif isinstance(report, protocol.Fault):
            self._on_fault(host, report)
        elif not self._running.receive(host, report) and self._state.outcome is None:
            planning.receive(host, report)

    def _start_left(self) -> float | None:
        """Return the seconds that are left of `timeouts.start`; None: its time does not run."""
        handle = self._timers.get(lifecycle.START)
        due = None if handle is None else handle.when
        return None if due is None else due - self._loop.now()

    def _on_fault(self, host: str, fault: protocol.Fault) -> None:
        if self._planning is not None:
            self._planning.leave_out(host, fault.cause)
        self.emit(events.HostFault(at=fault.at, host=host, cause=fault.cause))
        self._abort_by_agent(host, fault.cause)
        if self._state.outcome is None and self._state.replaces_hosts:
            # Its tasks restart elsewhere once nothing of them is left.
            self._hosts.order(host, protocol.Shutdown())
        if self._planning is not None:
            self._planning.restart(host)

    def _abort_by_agent(self, host: str, cause: Cause) -> bool:
        """End the job if a defect in distrun's agent explains what a host says."""
        text = events.agents_defect(cause)
        if text is None:
            return False
        outcome = self._state.outcome
        if outcome is not None and outcome.cause.code is Code.AGENT_FAILED:
            return True
        path = self._folder.shown(self._folder.supervisor_log)
        with contextlib.suppress(OSError):
            print(f"the agent on {host} failed:\n{text}", file=sys.stderr)  # noqa: T201
        last = text.strip().rpartition("\n")[2][:_MOST_WORDS]
        cause = Cause(Code.AGENT_FAILED, host=host, text=last, path=path)
        self._abort(InternalError(cause=cause))
        return True

    def _is_of_former_host(self, host: str, report: Report) -> bool:
        """Whether a report is about a task that is on another host by now, or on none."""
        if not isinstance(report, _OBSERVATIONS):
            return False
        task = self._state.tasks.get(report.task)
        return task is None or task.host != host

    def _on_task_report(self, host: str, report: events.Event) -> None:
        if isinstance(report, protocol.TaskExited):
            self._running.end(report.task, report)
            return
        self.emit(report)
        if isinstance(report, (protocol.TaskStarted, protocol.TaskNotStarted)):
            self._starts.on_answer(host, report.task)
        if isinstance(report, protocol.TaskStarted):
            self._running.start(report)

    def _use_plan(self, plan: Plan) -> tuple[events.PlannedTask, ...] | None:
        """Write a plan down and start tasks by it from now on.

        Returns its tasks for the record; None if the plan could not be written.
        """
        path = self._folder.plan_file
        try:
            replace_file(path, json.dumps(plan.record(), indent=1) + "\n")
        except OSError as error:
            shown, errno = self._folder.shown(path), error.errno or 0
            cause = Cause(Code.PLAN_NOT_WRITTEN, path=shown, errno=errno)
            self._abort(HostError(cause=cause))
            return None
        self._tasks = {task.name: task for task in plan.tasks}
        self._hosts.set_logs_aside({task.name: task.host for task in plan.tasks})
        self._running.use_plan(plan.tasks)
        return self._records(plan)

    def _records(self, plan: Plan) -> tuple[events.PlannedTask, ...]:
        """Return the tasks of a plan for the record."""
        return tuple(
            replace(planned_task(task), log_start=self._log_start(task)) for task in plan.tasks
        )

    def _log_start(self, task: TaskPlan) -> int:
        """Return where the log on a task's host begins in its copy; 0 if there is no copy.

        An unfinished line before that is ended.
        """
        if not self._has_own_files(task.host):
            return 0
        present = self._state.tasks.get(task.name)
        is_further = self._state.phase is not lifecycle.JobPhase.PREPARING
        if not is_further or present is None or present.host != task.host:
            return self._folder.end_line(task.name)
        is_new = self._state.has_new_agent(present)
        return self._folder.end_line(task.name) if is_new else present.log_start

    def _start_tensorboard(self) -> None:
        """Start TensorBoard below an agent on this machine, which ends it with the job."""
        host, job_id = self._hosts.below_supervisor, self._folder.job_id
        order = None if host is None else partial(self._hosts.order, host)
        self._tensorboard = TensorBoard(self._loop, self._spec, job_id, order, self.emit, time.time)

    def on_unreachable(self, causes: Mapping[str, Cause]) -> None:
        if self._state.outcome is not None or self._planning is None:
            return
        if not any(self._abort_by_agent(host, cause) for host, cause in causes.items()):
            self._planning.on_unreachable(causes)

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.HostLost):
            self._starts.remove_host(event.host)
            if self._is_finishing and event.cause.code is not Code.PROCESSES_NOT_ENDED:
                return
            self._on_host_lost(event)
        self.emit(event)
        if isinstance(event, (events.HostLost, events.LinkLost)):
            self._events.call_after(partial(self._after_loss, event))

    def _after_loss(self, event: events.HostLost | events.LinkLost) -> None:
        if self._planning is not None:
            self._planning.restart(event.host)
        if self._state.killing and isinstance(event, events.LinkLost):
            self._hosts.abandon_lost()

    def _on_host_lost(self, event: events.HostLost) -> None:
        self._abort_by_agent(event.host, event.cause)
        self._running.stacks.forget_host(event.host)
        if self._planning is not None:
            self._planning.on_lost(event.host, event.cause)

    # Waiting -------------------------------------------------------------------------------

    def _on_timer(self, timer: events.Timer) -> None:
        within: tuple[Cause, ...] = ()
        if timer == lifecycle.START and self._planning is not None:
            within = self._planning.why_waiting() or self._running.why_not_ready()
        self.emit(events.TimedOut(at=time.time(), timer=timer, within=within))

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers and not self._stopped_within(_SAME_REQUEST_SECONDS):
            cause = Cause(Code.SUPERVISOR_SIGNALLED, signal=signal.SIGTERM)
            self._was_signalled, self._stop_requested_at = True, time.monotonic()
            follow = partial(self._stop_by_signal, self._stop_requested_at)
            self._hosts.find_interruption(cause, follow)
        self._hosts.check_exits()

    def _stop_by_signal(self, at: float, cause: Cause) -> None:
        """Stop the job after SIGTERM, unless somebody has had it stopped meanwhile."""
        if at == self._stop_requested_at:
            order = protocol.StopJob(cause, signal.SIGTERM, None, 128 + signal.SIGTERM)
            self._request_stop(order, is_signal=True)

    # Commands ------------------------------------------------------------------------------

    def _on_client(self, client: Client, message: Request) -> None:
        if isinstance(message, protocol.StopJob):
            self._request_stop(from_json(protocol.StopJob, message))
        elif isinstance(message, protocol.Detach) and client is self._launch:
            self._launch = None
        elif isinstance(message, protocol.TakeStacks):
            self._take_stacks(client, message)
        elif isinstance(message, protocol.Watch):
            self._clients.watching.add(client)
            for progress in self._running.progress:
                client.send(progress)
            client.send(protocol.WatchStarted())

    def _take_stacks(self, client: Client, request: protocol.TakeStacks) -> None:
        def answer(found: Stacks) -> None:
            if not client.ended:
                processes = [to_json(each) for each in found.processes]
                client.send(protocol.StacksTaken(processes, found.silent))

        names = set(request.tasks or self._state.tasks)
        program, native, recorded = request.program, request.native, request.seconds
        self._running.stacks.ask(
            self._state, names, program, answer, native=native, recorded=recorded
        )

    def _has_own_files(self, host: str) -> bool:
        return self._planning is None or self._planning.hosts.has_own_logs(host)

    def _on_client_end(self, client: Client) -> None:
        if client is self._launch:
            self._launch = None
            cause = Cause(Code.LAUNCH_COMMAND_DIED)
            stop = protocol.StopJob(cause, signal.SIGTERM, protocol.KILL_GRACE, 129)
            self._request_stop(stop)

    def _stopped_within(self, seconds: float) -> bool:
        """Whether the job was asked to stop so many seconds ago at most.

        Slurm sends SIGTERM to all processes of a step at once, the launch command's and this one:
        that is one request, and a second one would kill the job. The launch command asks Slurm
        first why it did.
        """
        return time.monotonic() - self._stop_requested_at < seconds

    def _request_stop(self, order: protocol.StopJob, *, is_signal: bool = False) -> None:
        is_of_launch = order.exit_code == 128 + signal.SIGTERM and not is_signal
        if is_of_launch and self._was_signalled and self._stopped_within(_LAUNCH_SECONDS):
            return
        self._was_signalled = is_signal
        self._stop_requested_at = time.monotonic()
        grace = self._spec.timeouts.grace if order.grace is None else order.grace
        self._hosts.resume_suspended()
        self.emit(
            events.StopRequested(
                at=time.time(),
                cause=order.cause,
                signal=order.signal,
                grace=grace,
                exit_code=order.exit_code,
            )
        )
        self._former_agents.stop(at_once=self._state.killing)
        self._hosts.limit_ends(0.0 if self._state.killing else grace)
        if self._state.killing:
            self._hosts.abandon_lost()
            if self._results is not None:
                self._results.stop()
