"""The events of a job: everything that can happen to it. :mod:`.record` is their file."""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args

from distrun.advice.model import Advice
from distrun.agent import protocol
from distrun.agent.protocol.causes import Cause, Code, Subject
from distrun.codec import from_json, to_json
from distrun.errors import InternalError
from distrun.frozen import Frozen, dataclass_transform, field
from distrun.job.stacks import Place
from distrun.preflight import Grade
from distrun.spec.model import Ready, Timeouts
from distrun.spec.restart_spec import NO_RESTARTS, RestartSpec
from distrun.strategies import Role, Success, Workers
from distrun.verdict.model import Verdict

KINDS: dict[str, type[Event]] = {}
"""All kinds of events by their names."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class OwnEvent(Frozen, kw_only=True):
    """Something that the supervisor saw or did; `at` is Unix time in seconds."""

    at: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__(kw_only=True)
        KINDS[cls.__name__] = cls


class JobCreated(OwnEvent):
    """The supervisor has begun. The first event of every record, or the one after JobQueued."""

    job_id: str
    name: str
    strategy: str
    success: Success
    spec_file: str
    supervisor_pid: int
    timeouts: Timeouts = field(default_factory=Timeouts)
    restart: RestartSpec = NO_RESTARTS
    workers: Workers = Workers.COORDINATED
    role_restarts: dict[str, RestartSpec] = field(default_factory=dict)
    """The policies of roles with one of their own."""
    log_max_size: int | None = None
    """How many bytes of each log are kept; None: all."""
    strict: bool = False
    """Whether a success with a warning is a failure."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of distrun, and of Python and TensorFlow of the tasks on the launching machine."""


class JobResumed(JobCreated):
    """`distrun resume` continues a job that has ended, or whose supervisor has died.

    Its fields replace those of :class:`JobCreated`. Nothing of the earlier attempts is left on the
    launching machine. A :class:`HostCleared` follows for each host, then a new plan.
    """

    changes: tuple[str, ...] = ()
    """The `--set` of this resume, as `PATH=VALUE` each."""
    down: float = 0.0
    """Seconds since the last event before it."""


class JobQueued(OwnEvent):
    """The job waits in the queue of Slurm or Kubernetes: it was submitted, or it was queued again.

    The first event of the record of a submitted job. `cause`: why it was queued again.
    """

    job_id: str
    name: str
    strategy: str
    spec_file: str
    batch_id: str
    """Its scheduler's id of it."""
    scheduler: str = "Slurm"
    timeouts: Timeouts = field(default_factory=Timeouts)
    cause: Cause | None = None


class HostNotCleared(OwnEvent):
    """It is not known yet that nothing of earlier attempts is left on the host. Recorded once.

    `seconds`: how long its agent may still have a lease; None: without end.
    """

    host: str
    cause: Cause
    seconds: float | None


class HostCleared(OwnEvent):
    """Nothing of the job's earlier attempts, or of a job that was lost, is left on the host.

    `cause`: how that is known if the host itself could not say so. `received`: as in
    :class:`HostLost`.
    """

    host: str
    cause: Cause | None = None
    received: dict[str, int] = field(default_factory=dict)


class HostAgent(Frozen, kw_only=True):
    """What is known of a host's agent from its start. `agent_pid` is its id on its own host."""

    agent_pid: int
    hostname: str
    kind: str = "local"
    """A label for people: the way to reach it, such as "ssh"."""
    pid_namespace: str = ""
    """The namespace of its process ids, see :func:`distrun.agent.linux.facts.pid_namespace`."""
    behind: float = 0.0
    """Seconds by which the host's clock is behind the supervisor's. All times here are by that."""
    token: str = ""
    """Identifies the agent if a later supervisor has to end it; empty if it ends with its link."""
    folder: str = ""
    """The agent's private folder on the host, with its tasks' logs; empty if it has none."""
    spare: bool = False
    """Whether it runs tasks only in place of another host."""
    room: int | None = None
    """How many tasks it may have; None: they are this machine's, and stay."""
    role: str = ""
    """The role whose tasks alone run there; empty: those of all without hosts of their own."""


class HostReady(HostAgent, OwnEvent):
    """The host's agent is ready."""

    host: str
    python: str
    cores: float
    gpus: tuple[int, ...]
    address: str | None = None
    """The address of the host that the login connected to."""
    found_as: str = ""
    """How a later login finds this very host, such as the name of a pod; empty: by its name."""


class HostLost(OwnEvent):
    """The host's agent has ended or is out of reach for good; none of its tasks runs any more.

    The host may be connected again later: HostReady follows. `received`: how many bytes of the logs
    there have arrived, by the task; empty if the host keeps none.
    """

    host: str
    cause: Cause
    received: dict[str, int] = field(default_factory=dict)


class HostLeftOut(OwnEvent):
    """No task is started on the host any more, or it is a spare that cannot be used.

    A spare that could not be reached has no HostReady.
    """

    host: str
    cause: Cause


class LinkLost(OwnEvent):
    """The link to a host's agent is lost. Its tasks continue for at most `timeouts.link`."""

    host: str
    cause: Cause


class LinkRestored(OwnEvent):
    """The link is restored. The events that happened meanwhile follow."""

    host: str


class LogsIncomplete(OwnEvent):
    """Parts of the logs of a host's tasks are missing on this machine."""

    host: str
    cause: Cause


class LogsReceivedLate(OwnEvent):
    """A lost host was reached again and has sent the rest of its tasks' logs.

    `sizes`: how many bytes arrived, by the task. `folder`: where they were on the host.
    """

    host: str
    sizes: dict[str, int]
    folder: str = ""


class SyncStarted(OwnEvent):
    """The transfer of the program's files that a host lacks has started. Sizes in bytes."""

    host: str
    files: int
    size: int
    all_files: int
    all_size: int


class Synced(OwnEvent):
    """The host has all of the program's files. `files` and `size` (bytes) were sent."""

    host: str
    files: int
    size: int


class FilesPreserved(OwnEvent):
    """Tasks wrote files into the host's copy of the program's files; they are kept in `folder`."""

    host: str
    folder: str
    files: int
    size: int


class ResultsFetched(OwnEvent):
    """The files of `program.results` were copied from other hosts into `folder`.

    `files` and `size` (bytes) have come. `causes`: why not all of it has. `apart`: the folders in
    it for the files of hosts that differ from those of the same names on others.
    """

    folder: str
    files: int
    size: int
    causes: tuple[Cause, ...] = ()
    apart: tuple[str, ...] = ()


class HostFault(OwnEvent):
    """The host's agent has failed and is stopping its tasks."""

    host: str
    cause: Cause


class TaskRecord(Frozen, kw_only=True):
    """A planned task, as far as the job's state needs it.

    With `owns_tf_config`, it serves where its own TF_CONFIG says, whatever its `address` is.
    """

    name: str
    role: Role
    index: int
    host: str
    address: str | None = None
    owns_tf_config: bool = False
    after: tuple[Role, ...] = ()
    """The roles whose tasks must be ready before it starts."""
    ready: Ready = Ready.OFF
    ready_line: str = ""
    joins_cluster: bool = False
    """Whether its role is custom, and TF_CONFIG's cluster has it."""
    log_start: int = 0
    """The size (bytes) of its log in the job's folder when it was planned. The log on its host
    begins there, unless the task writes into the job's folder."""


class JobPlanned(OwnEvent):
    """Every task has its host, its port and its command.

    A job is planned again if tasks need other hosts. Then there may be fewer workers, or more
    again. Each task starts its next attempt, except those in `kept`, which continue.

    Attributes:
        kept: the tasks that this plan does not start.
        former_hosts: the hosts of tasks that were on another host before, by the task.
        all_workers: the number of workers in the spec, if there are fewer in this plan.
    """

    tasks: tuple[TaskRecord, ...]
    kept: tuple[str, ...] = ()
    former_hosts: dict[str, str] = field(default_factory=dict)
    all_workers: int | None = None


class PlanFailed(OwnEvent):
    """A restart waits: there is no plan for its tasks. Planning is retried when a host is ready.

    `restart` is 0 if the first start waits for pods.
    """

    restart: int
    cause: Cause


class PreflightSkipped(OwnEvent):
    """The hosts were not checked before the first task, as `--no-preflight` asked."""


class PreflightStarted(OwnEvent):
    """The preflight has started; `hosts` is the number of hosts that it checks."""

    hosts: int


class PreflightFound(OwnEvent):
    """A check of a host that did not pass. `grade` is WARNING or FAILED."""

    host: str
    subject: Subject
    grade: Grade
    cause: Cause


class PreflightEnded(OwnEvent):
    """The preflight has ended; the numbers of all checks, failures and warnings."""

    checks: int
    failed: int
    warnings: int


class Aborted(OwnEvent):
    """The job cannot start or continue: a port is taken, a plan is impossible, a disk is full."""

    cause: Cause
    exit_code: int


class TaskReady(OwnEvent):
    """The task is ready for those that start after it: it listens, or has printed the line."""

    task: str
    attempt: int


class ClusterMismatched(OwnEvent):
    """A task serves at another address than the others expect: the cluster cannot form."""

    cause: Cause


class TasksQuiet(OwnEvent):
    """Since then (Unix seconds), no task printed anything new, reported progress or used a core.

    Attributes:
        usual: if tasks still use it, the seconds that passed between steps or lines before.
        busy: then the tasks that are busy while the others wait; none: all are.
        is_asked: whether it is told this early because somebody stops the job.
    """

    since: float
    usual: float = 0.0
    busy: tuple[str, ...] = ()
    is_asked: bool = False


class TasksActive(OwnEvent):
    """A task does something again."""


class JobAdvised(OwnEvent):
    """Something costs the running job much of its time. Recorded once for each task while it does.

    `finding` None: what was advised before no longer costs much.
    """

    finding: Advice | None


class StartsCanceled(OwnEvent):
    """The tasks were to be stopped before their starts had been sent to their hosts."""

    tasks: tuple[str, ...]


class FirstStep(OwnEvent):
    """The attempt has reported or printed its first step. `at` is by the supervisor's clock.

    `values` are its progress then, by the keys of a report; `is_printed`: it has not reported them.
    """

    task: str
    attempt: int
    values: dict[str, str] = field(default_factory=dict)
    is_printed: bool = False


class SavingStarted(OwnEvent):
    """The attempt has reported `SAVING=1`. `at` is by the supervisor's clock."""

    task: str
    attempt: int


class SavingEnded(OwnEvent):
    """The attempt has reported `SAVING=0`. `at` is by the supervisor's clock."""

    task: str
    attempt: int


class TaskReported(OwnEvent):
    """The last progress that a task has reported or printed, recorded before its exit.

    Times are by the supervisor's clock. `step_at`: when its step changed last, if it has steps.
    """

    task: str
    values: dict[str, str]
    step_at: float | None = None


class RestartPlanned(OwnEvent):
    """A restart was decided after a failure.

    A second one with the same number replaces the first: a host was lost at about the same time,
    which explains that failure. It is not counted again.

    Attributes:
        delay: the seconds after which the tasks start again at the earliest.
        is_free: whether it does not count against `restart.max`.
        left: how many counted restarts are left.
    """

    number: int
    tasks: tuple[str, ...]
    cause: Cause
    delay: float
    is_free: bool
    left: int


class TensorBoardStarted(OwnEvent):
    """TensorBoard, which was started beside the job, answers at the URL `address`."""

    address: str


class TensorBoardSilent(OwnEvent):
    """TensorBoard was started, and has not answered for a long time."""

    cause: Cause


class TensorBoardEnded(OwnEvent):
    """TensorBoard ended, or could not be started. The job continues."""

    cause: Cause


class StopRequested(OwnEvent):
    """A command or a signal asked to stop the job; `cause` says which."""

    cause: Cause
    signal: int
    grace: float
    exit_code: int


class TimerKind(str, Enum):
    """The kinds of timers. The comment names the `key` of :class:`Timer`, if the kind has one."""

    START = "start"
    RUN = "run"
    STALL = "stall"
    EVALUATOR = "evaluator"
    ABORT = "abort"
    RESTART = "restart"  # the restart's number
    HEALTH = "health"  # the budget whose restarts are counted from 0 again


class Timer(Frozen):
    """One of a job's timers, written as `stall` or `restart:1`."""

    kind: TimerKind
    key: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.key}" if self.key else self.kind.value

    to_json = __str__

    @classmethod
    def from_json(cls, text: str) -> Timer:
        """The inverse. Raises ValueError for an unknown kind."""
        kind, _, key = text.partition(":")
        return cls(TimerKind(kind), key)


class TimedOut(OwnEvent):
    """One of the job's timers expired.

    Attributes:
        within: what kept the hosts from being prepared until then.
        places: where the tasks were, if they made no progress and py-spy is there: the rarest
            place first.
        busy: the tasks that were busy then while the others waited; none: it was not so.
    """

    timer: Timer
    within: tuple[Cause, ...] = ()
    places: tuple[Place, ...] = ()
    busy: tuple[str, ...] = ()


class VerdictReached(OwnEvent):
    """A failure was analyzed: before a restart, or at the job's end."""

    verdict: Verdict
    before_restart: bool = False


class Result(str, Enum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Origin(str, Enum):
    """Who determined a job's exit code: a task by its own exit, or distrun."""

    TASK = "task"
    DISTRUN = "distrun"


class Outcome(Frozen, kw_only=True):
    """How a job ended.

    `task` is the task that determined the exit code, or that failed; `verdict` is what is known
    of a failed job's first cause, or the warning about a success.
    """

    result: Result
    exit_code: int
    origin: Origin
    cause: Cause
    task: str | None = None
    verdict: Verdict | None = None

    @classmethod
    def stopped(cls, exit_code: int, *causes: Cause) -> Outcome:
        """Return that of a job that was stopped. `causes`: who or what stopped it."""
        cause = Cause(Code.JOB_STOPPED, within=causes)
        return cls(result=Result.STOPPED, exit_code=exit_code, origin=Origin.DISTRUN, cause=cause)


class JobEnded(OwnEvent):
    """Nothing of the job is left, except on hosts that could not be reached.

    Only a :class:`HostCleared` of these, or a :class:`JobResumed`, may follow.
    """

    outcome: Outcome


# Reports of agents that are events as they are: `at` is by the clock of the task's host.
TaskStarted = protocol.TaskStarted
TaskNotStarted = protocol.TaskNotStarted
TaskExited = protocol.TaskExited
TaskEnded = protocol.TaskEnded
ProgressIgnored = protocol.ProgressIgnored
ChildrenFail = protocol.ChildrenFail

_Notice = ProgressIgnored | ChildrenFail
Event = OwnEvent | TaskStarted | TaskNotStarted | TaskExited | TaskEnded | _Notice
KINDS.update({kind.__name__: kind for kind in get_args(Event)[1:]})


def encode(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object in the record."""
    return {"event": type(event).__name__, "at": event.at, **to_json(event)}


def decode(record: Any) -> Event | None:
    """The inverse; None for an event that this version does not know.

    Raises:
        ValueError: it is not an event.
    """
    kind = KINDS.get(str(record.get("event"))) if isinstance(record, dict) else None
    if kind is None:
        return None
    event = from_json(kind, record)
    if isinstance(event, JobPlanned):
        for task in event.tasks:
            if task.name != f"{task.role.value}:{task.index}":  # the logs are found by it
                raise ValueError(f"{task.name!r} is not a task")
    return event


def agents_defect(cause: Cause) -> str | None:
    """Return what a defect in the agent raised, if that is the cause; its traceback, if known.

    An agent that cannot report it any more exits as distrun does after a defect.
    """
    is_exit = cause.code is Code.AGENT_EXITED and cause.status == InternalError.exit_code
    if is_exit or cause.code is Code.AGENT_FAILED:
        return cause.text
    return next(filter(None, map(agents_defect, cause.within)), None)
