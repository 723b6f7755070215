"""A job and its tasks as the record tells them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from distrun.spec.model import NO_RESTARTS, RestartSpec
from distrun.strategies import STRATEGIES, Role, Scope, Success

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distrun.agent.protocol import Cause
    from distrun.events import Outcome
    from distrun.verdict.model import Verdict


class TaskPhase(str, Enum):
    """Where a task is.

    `exited`: its first process is gone, others of it are being ended. `restarting`: nothing of
    an attempt is left, and another is to follow.
    """

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
    """Where a job is. `restarting`: its group is stopped, to be started again."""

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


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """One task as the record tells it: its present attempt, or its last. Times are Unix seconds."""

    name: str
    role: Role
    index: int
    host: str
    address: str | None = None
    proxied: Cause | None = None
    """Set if its environment sends gRPC to a proxy instead of its peers."""
    phase: TaskPhase = TaskPhase.STARTING
    attempt: int = 0
    restart: int | None = None
    """The number of the restart that it is a part of, until that has begun."""
    pid: int | None = None
    started_at: float | None = None
    exited_at: float | None = None
    ended_at: float | None = None
    lived: float | None = None
    """Seconds from start to exit, whatever clocks did meanwhile."""
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    """Why it could not be started or was lost, where that is so."""
    oom: str = ""
    """What shows that the kernel killed it for want of memory."""
    was_suspended: bool = False
    """Whether it stood still when it was told to stop."""
    stopped_by_us: bool = False
    reported: dict[str, str] = field(default_factory=dict)
    """What it last said of its progress, once it has exited."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left of its present attempt."""
        return self.phase.is_final or self.phase is TaskPhase.RESTARTING

    @property
    def has_failed_exit(self) -> bool:
        return self.signal is not None or bool(self.code) or self.reason is not None

    @property
    def account(self) -> Account:
        return Account.EVALUATOR if self.role is Role.EVALUATOR else Account.JOB

    @property
    def exit_status(self) -> int | None:
        """Its exit code, 128 + the number of the signal that ended it, or None: neither yet."""
        return self.code if self.signal is None else 128 + self.signal

    @property
    def has_done_its_part(self) -> bool:
        return self.code == 0 and self.phase in (TaskPhase.EXITED, TaskPhase.SUCCEEDED)

    def next_attempt(self) -> TaskState:
        """The same task, about to be started again: nothing of the last attempt stays."""
        return TaskState(
            name=self.name,
            role=self.role,
            index=self.index,
            host=self.host,
            address=self.address,
            proxied=self.proxied,
            attempt=self.attempt + 1,
        )


@dataclass(frozen=True, kw_only=True)
class HostState:
    name: str
    agent_pid: int
    hostname: str
    lost: str | None = None
    fault: str | None = None
    """Why its agent cannot go on, where nothing of the job needed that."""
    kind: str = "local"
    """How it is reached, for people."""
    pid_namespace: str = ""
    """Where its process ids hold."""
    link_lost: str | None = None
    """Why there is no link to its agent just now."""
    link_lost_at: float | None = None
    behind: float = 0.0
    """Seconds by which its clock is behind the supervisor's: its times plus this compare."""

    @property
    def why_unusable(self) -> str | None:
        """Why nothing can start on it any more, in words; None where something can."""
        if self.lost is not None:
            return f"{self.name} was lost: {self.lost}"
        return None if self.fault is None else f"{self.name} cannot go on: {self.fault}"


class Account(str, Enum):
    """Whose budget pays for a restart: an evaluator's failures are not to fail the job."""

    JOB = "job"
    EVALUATOR = "evaluator"


@dataclass(frozen=True, kw_only=True)
class Restart:
    """One that has been decided and has not begun."""

    number: int
    account: Account
    scope: Scope
    tasks: tuple[str, ...]
    cause: str
    due_at: float
    """Unix seconds, for people; what counts is the timer."""
    attempts_left: int
    """How many of their attempts have not ended."""
    is_due: bool = False


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The restarts that have been spent: all of them, and since the last spell of health."""

    total: int = 0
    counted: int = 0
    free_in_a_row: int = 0
    is_timed: bool = False
    """Whether the timer runs after which they are counted from 0 again."""

    @property
    def is_whole(self) -> bool:
        return not self.counted and not self.free_in_a_row


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job as its record tells it.

    The three counts below follow from `tasks`; :meth:`with_tasks` keeps them, so that an event
    costs the same in a job of two tasks and of a thousand.
    """

    job_id: str = ""
    name: str = ""
    strategy: str = ""
    success: Success = Success.CHIEF_AND_WORKERS
    spec_file: str = ""
    supervisor_pid: int = 0
    grace: float = 10.0
    start_timeout: float | None = None
    run_timeout: float | None = None
    stall_timeout: float | None = None
    link_timeout: float | None = None
    """Seconds after which tasks that are out of reach end by themselves; None: never."""
    policy: RestartSpec = NO_RESTARTS
    phase: JobPhase = JobPhase.PREPARING
    created_at: float = 0.0
    ended_at: float | None = None
    hosts: dict[str, HostState] = field(default_factory=dict)
    tasks: dict[str, TaskState] = field(default_factory=dict)
    unended: int = 0
    """Tasks in no final phase."""
    unstarted: int = 0
    """Tasks that are starting."""
    undone: int = 0
    """Tasks whose exit 0 the job's success still waits for."""
    has_run: bool = False
    """Whether all tasks have run at once."""
    restarts: dict[int, Restart] = field(default_factory=dict)
    """Those to come, by their numbers."""
    budgets: dict[Account, Budget] = field(
        default_factory=lambda: {account: Budget() for account in Account}
    )
    verdict: Verdict | None = None
    """What the last failure was: of a restart, or the one that ended the job."""
    outcome: Outcome | None = None
    """Decided with the first thing that ends the job; final once `phase` is."""
    decided_at: float | None = None
    killing: bool = False
    finishing: bool = False

    def needs(self, task: TaskState) -> bool:
        """Whether the job fails with that task."""
        rule = STRATEGIES[self.strategy].roles[task.role]
        return rule.essential or self.success is Success.ALL

    def why_unusable(self, task: TaskState) -> str | None:
        """Why a task cannot start again on its host; None where it can."""
        host = self.hosts.get(task.host)
        return None if host is None else host.why_unusable

    @property
    def training(self) -> list[str]:
        """The tasks that the job is about: all but an evaluator."""
        return [task.name for task in self.tasks.values() if task.account is Account.JOB]

    def with_tasks(self, changed: Iterable[TaskState]) -> JobState:
        """This state with those tasks in it, new ones or in place of what they were."""
        tasks = dict(self.tasks)
        unended, unstarted, undone = self.unended, self.unstarted, self.undone
        for task in changed:
            for each, sign in ((tasks.get(task.name), -1), (task, 1)):
                if each is not None:
                    unended += sign * (not each.phase.is_final)
                    unstarted += sign * (each.phase is TaskPhase.STARTING)
                    needed = self.success.waits_for(each.role, each.index)
                    undone += sign * (needed and not each.has_done_its_part)
            tasks[task.name] = task
        return replace(self, tasks=tasks, unended=unended, unstarted=unstarted, undone=undone)
