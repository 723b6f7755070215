"""The state of a job, its tasks and its hosts, as the record's events make it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeVar

from distrun.agent.protocol.causes import Cause, Code
from distrun.frozen import Frozen, field, replace
from distrun.job.events import HostAgent, Outcome, TaskEnded, TaskExited, TaskRecord, TasksQuiet
from distrun.lifecycle.chunked_map import ChunkedMap
from distrun.spec.model import Timeouts
from distrun.spec.restart_spec import NO_RESTARTS, RestartSpec
from distrun.strategies import STRATEGIES, Role, RoleRule, Scope, Strategy, Success, Workers
from distrun.verdict.model import Replacement, Verdict

_Number = TypeVar("_Number", int, float)


class TaskPhase(str, Enum):
    """The phases of a task.

    `waiting`: it will start once other tasks are ready.
    `exited`: its first process has exited, and its other processes are being stopped.
    `restarting`: nothing of its last attempt is left, and it will start again.
    """

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.STOPPED)


class JobPhase(str, Enum):
    """The phases of a job.

    `pending`: it waits in the queue of Slurm or Kueue. `restarting`: its group is stopped and will
    start again.
    """

    PENDING = "pending"
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED)


class Used(Frozen, kw_only=True):
    """What the attempts of a task that have ended have used, see :mod:`distrun.job.history`.

    None: unknown, of one attempt and so of all. The peak is the highest that is known.
    """

    cpu_seconds: float | None = 0.0
    peak_memory_bytes: int | None = None
    read_bytes: int | None = 0
    written_bytes: int | None = 0

    def with_attempt(self, attempt: Used | TaskEnded) -> Used:
        """Return the sum with what another attempt has used."""
        seconds = total([self.cpu_seconds, attempt.cpu_seconds])
        return Used(
            cpu_seconds=None if seconds is None else round(seconds, 3),
            peak_memory_bytes=highest([self.peak_memory_bytes, attempt.peak_memory_bytes]),
            read_bytes=total([self.read_bytes, attempt.read_bytes]),
            written_bytes=total([self.written_bytes, attempt.written_bytes]),
        )


_UNKNOWN = Used(cpu_seconds=None, read_bytes=None, written_bytes=None)


def total(parts: Iterable[_Number | None]) -> _Number | None:
    """Return the sum; None if a part of it is unknown."""
    found = list(parts)
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) else None


def highest(values: Iterable[int | None]) -> int | None:
    """Return the highest that is known; None if none is."""
    return max((each for each in values if each is not None), default=None)


class LastStep(NamedTuple):
    """The last step that a task had made before its present attempt. `at`: Unix seconds."""

    epoch: int
    step: int
    at: float
    is_restart: bool = False
    """Whether the task has restarted by the plan that it had before."""
    began: LastStep | None = None
    """The first step of the attempt that made it."""

    @classmethod
    def of(cls, values: dict[str, str], at: float, *, is_restart: bool = False) -> LastStep | None:
        """Return the step that these values tell; None: they tell none."""
        step, epoch = (
            int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
            for text in (values.get(key, "") for key in ("STEP", "EPOCH"))
        )
        return None if step is None else cls(epoch or 0, step, at, is_restart)


class Interruption(Frozen, kw_only=True):
    """What a restart, a resume or another plan has cost.

    Attributes:
        at: when the first of its tasks made a step again.
        seconds: between this step and the last one before it.
        repeated_steps: None: unknown.
        is_restart: whether the task has restarted by the plan that it had before.
        is_anew: whether it began no later than where its last attempt had begun.
    """

    at: float
    seconds: float
    repeated_steps: int | None
    is_restart: bool
    is_anew: bool


class TaskState(TaskRecord, kw_only=True):
    """A planned task in its present attempt, or its last one. Times are Unix seconds."""

    agent: str = ""
    """The agent that holds its port and has its files."""
    first_attempt: int = 0
    """Its first attempt since the job was launched or resumed."""
    is_ready: bool = False
    phase: TaskPhase = TaskPhase.STARTING
    attempt: int = 0
    restart_cause: Cause | None = None
    """Why its waiting attempt follows another one."""
    has_only_waited: bool = False
    """Whether it is about to restart although its present attempt has not started."""
    restart: int | None = None
    """The number of the incident after which it restarts, until it has."""
    pid: int | None = None
    output_start: int | None = None
    """Where its attempt's output begins in its log, in bytes; None: that is not known."""
    started_at: float | None = None
    exited_at: float | None = None
    ended_at: float | None = None
    failing: Cause | None = None
    """What is said of its processes that fail one after another."""
    first_step_at: float | None = None
    first_step: dict[str, str] = field(default_factory=dict)
    """Its progress then: EPOCH and STEP."""
    is_saving: bool = False
    saves: int = 0
    """How often its attempt has reported that it has saved."""
    reason: Cause | None = None
    """Why it could not be started, or was lost."""
    exit: TaskExited = TaskExited("", 0, 0.0)
    """How its first process has exited, as its agent has reported it."""
    end: TaskEnded = TaskEnded("", 0, 0.0)
    """The agent's report of the end of all its processes."""
    stopped_by_us: bool = False
    reported: dict[str, str] = field(default_factory=dict)
    """The progress that it reported last; set once it has exited."""
    step_at: float | None = None
    """When its step had changed last, of that progress."""
    last_step: LastStep | None = None
    """Of its earlier attempts, until a task that was interrupted with it makes a step."""
    used: Used = Used()

    @property
    def code(self) -> int | None:
        return self.exit.code

    @property
    def signal(self) -> int | None:
        return self.exit.signal

    @property
    def used_if_ended(self) -> Used:
        """What it has used in all, if its attempt has ended and nobody saw how."""
        if self.started_at is None:
            return self.used
        return self.used.with_attempt(_UNKNOWN)

    @property
    def has_ended(self) -> bool:
        """Whether there is no process of its present attempt, or none any more."""
        return self.phase.is_final or self.phase in (TaskPhase.RESTARTING, TaskPhase.WAITING)

    @property
    def has_failed_exit(self) -> bool:
        return self.signal is not None or bool(self.code) or self.reason is not None

    @property
    def is_in_group(self) -> bool:
        """Whether it restarts with the group."""
        is_beside = self.role.is_custom and not self.joins_cluster
        return self.role is not Role.EVALUATOR and not is_beside

    @property
    def exit_status(self) -> int | None:
        """Its exit code, or 128 + the signal that killed it; None if it has not exited."""
        return self.code if self.signal is None else 128 + self.signal

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it, which distrun did not send, and no lack of memory."""
        return self.signal == SIGKILL and not self.stopped_by_us and self.exit.oom is None

    @property
    def has_done_its_part(self) -> bool:
        return self.code == 0 and self.phase in (TaskPhase.EXITED, TaskPhase.SUCCEEDED)

    @property
    def has_come_to_its_end(self) -> bool:
        """Whether it exited 0 after the last of its epochs and steps, whoever has signalled it."""
        totals = {key: self.reported.get(f"{key}S") for key in ("EPOCH", "STEP")}
        known = {key: total for key, total in totals.items() if total is not None}
        is_all = all(self.reported.get(key) == total for key, total in known.items())
        return self.code == 0 and known != {} and is_all

    @property
    def final_phase(self) -> TaskPhase:
        """Its phase once nothing of it is left, and it does not start again."""
        if not self.has_failed_exit:
            return TaskPhase.STOPPED if self.code is None else TaskPhase.SUCCEEDED
        return TaskPhase.STOPPED if self.stopped_by_us else TaskPhase.FAILED

    def ended(self, at: float, used: Used | None = None) -> TaskState:
        """Return it once nothing of its attempt is left. `used`: in all; None: not known."""
        phase = self.final_phase if self.restart is None else TaskPhase.RESTARTING
        return replace(self, phase=phase, ended_at=at, used=used or self.used_if_ended)

    def next_attempt(self, *, is_restart: bool = False) -> TaskState:
        """Return the same task before its next attempt, without the results of the last one."""
        lasting = (*TaskRecord.__dataclass_fields__, "agent", "first_attempt", "used")
        kept = {name: getattr(self, name) for name in lasting}
        at = self.step_at
        last = None if at is None else LastStep.of(self.reported, at, is_restart=is_restart)
        last = last and last._replace(began=LastStep.of(self.first_step, at or 0.0))
        attempt = self.attempt + (not self.has_only_waited)
        return TaskState(**kept, attempt=attempt, last_step=last or self.last_step)


_MOST_DIGITS = 15
SIGKILL = 9
JOB = "job"
"""The name of the budget of all tasks that have none of their own."""
SAME_TIME = 5.0
"""Up to so many seconds between the exit of a task and the loss of a host are the same time."""


class HostState(HostAgent, kw_only=True):
    """A host whose agent has started."""

    name: str
    lost: Cause | None = None
    fault: Cause | None = None
    link_lost: Cause | None = None
    """Why there is no link to its agent at present."""
    link_lost_at: float | None = None
    silent_since: float | None = None
    """Since when there has been no sign of life of it (Unix seconds); None: it has a link."""
    gpus: int = 0
    has_ended: bool = False
    """Whether its agent and everything that it had started are known to have ended."""
    lost_at: float | None = None
    """Since when it is lost (Unix seconds)."""
    left_out: Cause | None = None
    """Why no task is started on it, although it is not lost."""

    @property
    def agent(self) -> str:
        """Identifies its agent among all that it has had."""
        return f"{self.token} {self.agent_pid}"

    def explains_exit(self, exited_at: float, before: float = SAME_TIME) -> bool:
        """Whether it is lost, and another host's task exited at about the same time or later.

        `exited_at`: by the supervisor's clock (Unix seconds), at most `before` seconds earlier.
        """
        is_lost = self.lost is not None and self.silent_since is not None
        return is_lost and exited_at >= (self.silent_since or 0.0) - before

    def may_explain(self, task: TaskState) -> bool:
        """Whether a task's exit may follow from a loss of this host that is not known yet."""
        can_be_lost = bool(self.token) and self.lost is None
        return can_be_lost and (task.host != self.name or task.was_killed)

    def has_ended_with(self, task: TaskState) -> bool:
        """Whether it is lost, and an attempt of a task there has ended by that.

        The attempt had not exited, or SIGKILL killed it at about the same time.
        """
        if self.lost is None or (task.host, task.agent) != (self.name, self.agent):
            return False
        if not task.was_killed:
            return task.exit_status is None
        return self.explains_exit((task.exited_at or 0.0) + self.behind)

    @property
    def is_usable(self) -> bool:
        return self.why_unusable is None

    @property
    def why_unusable(self) -> Cause | None:
        """Why no task can start on it any more; None if tasks can."""
        if self.lost is not None:
            return Cause(Code.HOST_LOST, host=self.name, within=(self.lost,))
        if self.fault is not None:
            return Cause(Code.HOST_FAILED, host=self.name, within=(self.fault,))
        return self.left_out


class LostAgent(Frozen, kw_only=True):
    """A lost agent whose host may still have the rest of its tasks' logs."""

    host: str
    token: str
    folder: str
    at: float
    """When it was lost (Unix seconds)."""
    cause: Cause
    starts: dict[str, int]
    """Where its log begins in the copy, in bytes, by the task."""
    received: dict[str, int]
    """How many bytes of its log had arrived, by the task."""
    attempts: dict[str, int]


class EarlyFailures(Frozen):
    """How many attempts in a row were short and came no further, and how the last one failed."""

    count: int = 0
    last: Cause | None = None
    restart: int = 0
    """The number of the last restart that this takes into account."""
    reached: tuple[float, float] = (0.0, 0.0)
    """The last epoch and step that they reported."""


class Incident(Frozen, kw_only=True):
    """A failure, and what follows from it. That counts only once the tasks' attempts have ended."""

    number: int
    failed: str
    """The task whose failure it follows, or the first of those that a lost host ran."""
    budget: str
    """The name of the budget that a restart counts against: :data:`JOB`, or a role's."""
    scope: Scope
    tasks: tuple[str, ...]
    cause: Cause
    due_at: float
    """Unix seconds, to show; the timer decides."""
    attempts_left: int
    is_free: bool = False
    early: EarlyFailures = EarlyFailures()
    """The early failures in a row, with the failure that it follows."""
    is_due: bool = False
    is_planning: bool = False
    waits_for_host: Cause | None = None
    """Why there was no plan; None: none was asked for."""
    waits_for_link: Cause | None = None
    """Why it waits until a host's link is restored, or the host is lost."""
    refusal: Outcome | None = None
    """How the job ends instead, unless the loss of a host explains the exit of that task."""

    @property
    def is_settled(self) -> bool:
        """Whether no loss of a host can explain the failure any more."""
        return self.is_planning or self.waits_for_host is not None

    @property
    def needs_host(self) -> bool:
        """Whether a restart will begin as soon as there is a plan, or a link."""
        return self.is_settled or self.waits_for_link is not None


class Budget(Frozen, kw_only=True):
    """The restarts so far: all of them, and those since `restart.reset_after` last passed."""

    total: int = 0
    counted: int = 0
    free_in_a_row: int = 0
    is_timed: bool = False
    """Whether the timer of `restart.reset_after` runs."""

    def after(self, *are_free: bool) -> Budget:
        """Return it after more restarts, each of which is free or counts."""
        if not are_free:
            return self
        counted, total = are_free.count(False), self.total + len(are_free)
        free = [*reversed(are_free), False].index(False) + (0 if counted else self.free_in_a_row)
        return Budget(total=total, counted=self.counted + counted, free_in_a_row=free)

    @property
    def is_whole(self) -> bool:
        return not self.counted and not self.free_in_a_row


class JobState(Frozen, kw_only=True):
    """The state of a job. :meth:`with_tasks` updates the counts that follow from `tasks`."""

    job_id: str = ""
    name: str = ""
    strategy: str = ""
    workers: Workers = Workers.COORDINATED
    success: Success = Success.CHIEF_AND_WORKERS
    strict: bool = False
    spec_file: str = ""
    supervisor_pid: int = 0
    lacks_events: bool = False
    """Whether lines of its record cannot be read."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    policy: RestartSpec = NO_RESTARTS
    role_policies: dict[str, RestartSpec] = field(default_factory=dict)
    """The policies of roles with one of their own, by the role."""
    log_max_size: int | None = None
    phase: JobPhase = JobPhase.PREPARING
    created_at: float = 0.0
    ended_at: float | None = None
    queued_at: float | None = None
    """When it was last queued in Slurm (Unix seconds); None: never."""
    batch_id: str = ""
    resumed_at: tuple[float, ...] = ()
    changes: tuple[str, ...] = ()
    """The `--set` of all resumes, as `PATH=VALUE` each."""
    result_faults: tuple[Cause, ...] = ()
    """Why not all results have come back from other hosts."""
    unshared: tuple[Cause, ...] = ()
    """The folders for checkpoints that were found not to be the same on all hosts, each once."""
    down: float = 0.0
    """The seconds between its ends and its resumes."""
    repeated_steps: int = 0
    """How many steps were trained again after its resumes, as far as tasks have reported steps."""
    interruptions: tuple[Interruption, ...] = ()
    hosts: dict[str, HostState] = field(default_factory=dict)
    lost_agents: tuple[LostAgent, ...] = ()
    """Those whose logs may still be on their hosts, also after a resume."""
    former_hosts: dict[str, HostState] = field(default_factory=dict)
    """The hosts of earlier attempts which may still be alive there; empty unless it is resumed."""
    abandons_former_hosts: bool = False
    """Whether the job ends although it is not known that nothing is left on them."""
    tasks: ChunkedMap[TaskState] = field(default_factory=ChunkedMap)
    unended: int = 0
    """The number of tasks that are in no final phase."""
    unstarted: int = 0
    """The number of tasks that are starting, or are waiting to."""
    waiting: int = 0
    undone: int = 0
    """The number of tasks that must still exit 0 for success."""
    has_run: bool = False
    """Whether all tasks have run at the same time."""
    incidents: dict[int, Incident] = field(default_factory=dict)
    """By their numbers, each until its restart begins or the job ends."""
    waits_for_host: Cause | None = None
    """Why the hosts that it creates are not there yet, before the first plan."""
    last_restart: int = 0
    """The number of the restart that was planned last."""
    budgets: dict[str, Budget] = field(default_factory=lambda: {JOB: Budget()})
    """By the role, if that is the evaluator or has a policy of its own; the others': JOB."""
    all_workers: int = 0
    """The number of tasks of the role worker in the first plan."""
    dropped: dict[str, TaskState] = field(default_factory=dict)
    """The last state of tasks that the present plan does not have."""
    failing_host: str = ""
    """The host of the task whose failure came last."""
    failing_budget: str = JOB
    """The budget that its restart counted against."""
    failures_in_a_row: int = 0
    """How many failures before that were on the same host, with that one."""
    early: EarlyFailures = EarlyFailures()
    """The early failures before the restarts that have begun."""
    replacements: tuple[Replacement, ...] = ()
    quiet: TasksQuiet | None = None
    """That no task does anything, since when, and how they hang; None if a task does."""
    judged_restart: int = 0
    verdict: Verdict | None = None
    """On the last failure: one that was restarted, at most `judged_restart`, or ended the job."""
    outcome: Outcome | None = None
    """Set by the first event that ends the job; it may change until `phase` is final."""
    killing: bool = False
    finishing: bool = False

    def with_lost_agent(
        self, host: HostState, at: float, cause: Cause, received: dict[str, int]
    ) -> JobState:
        """Note that a host may still have logs. `received`: see :class:`.HostLost`."""
        tasks = {name: self.tasks[name] for name in received if self._is_on(name, host)}
        if not tasks:
            return self
        lost = LostAgent(
            host=host.name,
            token=host.token,
            folder=host.folder,
            at=at,
            cause=cause,
            starts={name: task.log_start for name, task in tasks.items()},
            received={name: received[name] for name in tasks},
            attempts={name: task.attempt for name, task in tasks.items()},
        )
        return replace(self, lost_agents=(*self.lost_agents, lost))

    def _is_on(self, name: str, host: HostState) -> bool:
        """Whether the present plan has a task on a host with that agent."""
        task = self.tasks.get(name)
        return task is not None and (task.host, task.agent) == (host.name, host.agent)

    def without_lost_logs(self, host: HostState) -> JobState:
        """Note that the rest of its logs went into the copies, which no other output follows."""
        left = []
        for lost in self.lost_agents:
            names = [name for name in lost.received if not self._is_on(name, host)]
            if lost.folder != host.folder:
                left.append(lost)
            elif names:
                received = {name: lost.received[name] for name in names}
                left.append(replace(lost, received=received))
        return replace(self, lost_agents=tuple(left))

    def needs(self, task: TaskState) -> bool:
        return self.rule(task).essential or self.success is Success.ALL

    @property
    def awaited(self) -> list[Cause]:
        """Why hosts are not there yet that it waits for."""
        causes = (self.waits_for_host, *(each.waits_for_host for each in self.incidents.values()))
        return [each for each in causes if each is not None]

    @property
    def is_queued(self) -> bool:
        """Whether Kueue has not admitted its pods, or has taken them away again."""
        return any(each.code is Code.POD_QUEUED for each in self.awaited)

    @property
    def row(self) -> Strategy:
        return STRATEGIES[self.strategy].with_workers(self.workers)

    @property
    def gpu_tasks(self) -> list[str]:
        hosts = {host.name for host in self.hosts.values() if host.gpus}
        return [task.name for task in self.tasks.values() if task.host in hosts]

    @property
    def synchronous_tasks(self) -> list[TaskState]:
        """The tasks that take each step together; none if the strategy does not do that."""
        tasks = self.tasks.values() if self.row.is_synchronous else ()
        return [task for task in tasks if task.role in (Role.CHIEF, Role.WORKER)]

    def rule(self, task: TaskState) -> RoleRule:
        rule = self.row.rule(task.role)
        return replace(rule, restarts=Scope.GROUP) if task.joins_cluster else rule

    def waits_for(self, task: TaskState) -> bool:
        """Whether the job succeeds only if this task exits 0."""
        return self.row.waits_for(self.success, task.role, task.index)

    def has_finished(self, task: TaskState) -> bool:
        """Whether a task has exited 0 by itself and never runs again."""
        by_itself = task.has_done_its_part and not task.stopped_by_us
        return by_itself and self.rule(task).finishes and not self.repeats(task)

    def repeats(self, task: TaskState) -> bool:
        """Whether a task starts again after exit 0, by `restart.on: always`."""
        is_alone = self.rule(task).restarts is Scope.TASK
        return is_alone and "always" in self.policy_of(task).on and not self.waits_for(task)

    def policy_of(self, task: TaskState) -> RestartSpec:
        """Return what decides whether a failure of a task leads to a restart."""
        return self.role_policies.get(task.role.value, self.policy)

    def with_host(self, host: HostState) -> JobState:
        return replace(self, hosts={**self.hosts, host.name: host})

    def with_incident(self, incident: Incident) -> JobState:
        return replace(self, incidents={**self.incidents, incident.number: incident})

    def incident_of(self, task: TaskState) -> Incident | None:
        return None if task.restart is None else self.incidents.get(task.restart)

    def budget(self, name: str) -> Budget:
        """Return a budget as it is once all planned restarts have begun."""
        are_free = (
            each.is_free
            for each in self.incidents.values()
            if each.budget == name and each.refusal is None
        )
        return self.budgets.get(name, Budget()).after(*are_free)

    def budget_of(self, task: TaskState) -> str:
        """Return the name of the budget that a restart after its failure counts against."""
        role = task.role.value
        is_own = task.role is Role.EVALUATOR or role in self.role_policies
        return role if is_own else JOB

    @property
    def has_restarts(self) -> bool:
        return any(each.max > 0 for each in (self.policy, *self.role_policies.values()))

    @property
    def restarts_made(self) -> int:
        """How often the job was restarted; restarts of an evaluator do not count."""
        names = {*self.budgets, *(each.budget for each in self.incidents.values())}
        return sum(self.budget(name).total for name in names - {Role.EVALUATOR.value})

    @property
    def leader(self) -> TaskState | None:
        """The task that gives the variables their values: the chief, or without one worker 0."""
        return self.tasks.get("chief:0") or self.tasks.get("worker:0")

    def why_unusable(self, task: TaskState) -> Cause | None:
        """Return why a task cannot restart on its host; None if it can."""
        host = self.hosts.get(task.host)
        return None if host is None else host.why_unusable

    def agent_of(self, task: TaskState) -> str:
        """Return what identifies the agent of a task's host; empty if there has been none."""
        host = self.hosts.get(task.host)
        return "" if host is None else host.agent

    def has_new_agent(self, task: TaskState) -> bool:
        """Whether its host was lost and has returned: no port is held, files are elsewhere."""
        return self.agent_of(task) != task.agent

    @property
    def training(self) -> list[str]:
        """The names of the tasks that train: all but evaluators and custom roles."""
        return [task.name for task in self.tasks.values() if task.is_in_group]

    def requires(self, incident: Incident) -> bool:
        """Whether the job fails if a restart cannot begin."""
        return any(self.needs(self.tasks[name]) for name in incident.tasks)

    @property
    def replaces_hosts(self) -> bool:
        """Whether tasks may restart on other hosts. Records of earlier versions know no room."""
        return self.has_restarts and any(host.room is not None for host in self.hosts.values())

    @property
    def host_to_avoid(self) -> str | None:
        """The usable host on which tasks fail again and again, while others have no failures."""
        host = self.hosts.get(self.failing_host)
        hosts = {task.host for task in self.tasks.values()}
        is_too_often = self.failures_in_a_row >= self.policy.host_failures and len(hosts) > 1
        return host.name if host is not None and host.is_usable and is_too_often else None

    def has_room_beside(self, name: str) -> bool:
        """Whether other hosts have room for a host's tasks, or the job may do with fewer."""
        if not self._usable_beside(name):
            return False
        there = sum(task.host == name for task in self.tasks.values())
        lacking, least = there - self.free_room_beside(name), self.policy.min_workers
        return lacking <= 0 or (least is not None and self.worker_count - lacking >= least)

    def free_room_beside(self, name: str) -> int:
        """Return how many more tasks the usable hosts may have, besides one host."""
        counts = self.tasks_on_hosts
        usable = self._usable_beside(name)
        return sum(max(0, (host.room or 0) - counts[host.name]) for host in usable)

    def _usable_beside(self, name: str) -> list[HostState]:
        """The other usable hosts that may run the tasks of a host."""
        role = self.hosts[name].role if name in self.hosts else ""
        others = (host for host in self.hosts.values() if host.name != name)
        return [host for host in others if host.is_usable and host.role == role]

    @property
    def tasks_on_hosts(self) -> Counter[str]:
        """How many tasks each host has, without those that stay down."""
        tasks = self.tasks.values()
        return Counter(t.host for t in tasks if t.restart or t.phase is not TaskPhase.FAILED)

    @property
    def task_names(self) -> list[str]:
        """The names of all tasks that the job has or had."""
        return [*self.tasks, *self.dropped]

    @property
    def worker_count(self) -> int:
        return sum(task.role is Role.WORKER for task in self.tasks.values())

    def with_plan(self, tasks: Iterable[TaskState]) -> JobState:
        planned = {task.name: task for task in tasks}
        dropped = {
            name: replace(each, restart=None)
            for name, each in self.tasks.items()
            if name not in planned
        }
        empty = replace(
            self, tasks=ChunkedMap(), unended=0, unstarted=0, waiting=0, undone=0,
            dropped={name: each for name, each in {**self.dropped, **dropped}.items()
                     if name not in planned},
        )  # fmt: skip
        return empty.with_tasks(planned.values())

    def with_tasks(self, changed: Iterable[TaskState]) -> JobState:
        changes = {task.name: task for task in changed}
        unended, unstarted, undone = self.unended, self.unstarted, self.undone
        waiting = self.waiting
        for task in changes.values():
            for each, sign in ((self.tasks.get(task.name), -1), (task, 1)):
                if each is not None:
                    unended += sign * (not each.phase.is_final)
                    unstarted += sign * (each.phase in (TaskPhase.STARTING, TaskPhase.WAITING))
                    waiting += sign * (each.phase is TaskPhase.WAITING)
                    undone += sign * (self.waits_for(each) and not each.has_done_its_part)
        tasks = self.tasks.updated(changes)
        return replace(
            self, tasks=tasks, unended=unended, unstarted=unstarted, waiting=waiting, undone=undone
        )
