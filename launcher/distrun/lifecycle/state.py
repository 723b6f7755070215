"""A job and its tasks as the record tells them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from distrun.events import Outcome
from distrun.strategies import Role, Success


class TaskPhase(str, Enum):
    """Where a task is. `exited`: its first process is gone, others of it are being ended."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.STOPPED)


class JobPhase(str, Enum):
    """Where a job is. Restarting is a stop whose end is another start, not a failure."""

    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED)


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """One task as the record tells it. Times are Unix seconds."""

    name: str
    role: Role
    index: int
    host: str
    address: str | None = None
    phase: TaskPhase = TaskPhase.WAITING
    attempt: int = 0
    pid: int | None = None
    started_at: float | None = None
    exited_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    """Why it could not be started or was lost, where that is so."""
    stopped_by_us: bool = False
    reported: dict[str, str] = field(default_factory=dict)
    """What it last said of its progress, once it has exited."""

    @property
    def has_failed_exit(self) -> bool:
        return self.signal is not None or bool(self.code) or self.reason is not None


@dataclass(frozen=True, kw_only=True)
class HostState:
    name: str
    agent_pid: int
    hostname: str
    lost: str | None = None
    is_local: bool = True
    link_lost: str | None = None
    """Why there is no link to its agent just now."""
    link_lost_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job as its record tells it."""

    job_id: str = ""
    name: str = ""
    strategy: str = ""
    success: Success = Success.CHIEF_AND_WORKERS
    spec_file: str = ""
    supervisor_pid: int = 0
    grace: float = 10.0
    start_timeout: float | None = None
    run_timeout: float | None = None
    phase: JobPhase = JobPhase.PREPARING
    created_at: float = 0.0
    ended_at: float | None = None
    hosts: dict[str, HostState] = field(default_factory=dict)
    tasks: dict[str, TaskState] = field(default_factory=dict)
    outcome: Outcome | None = None
    """Decided with the first thing that ends the job; final once `phase` is."""
    decided_at: float | None = None
    killing: bool = False
    finishing: bool = False
