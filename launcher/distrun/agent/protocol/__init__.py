"""The protocol that both ends of a link speak, and commands and supervisors: its messages.

An :class:`Order` goes from the supervisor to an agent, a :class:`Report` from an agent to the
supervisor. A :class:`Request` goes from a command to a supervisor, a :class:`Notice` from a
supervisor to the commands. :mod:`.channel` carries them.
The messages of the preflight (:mod:`.probe_messages`), of files (:mod:`.file_messages`) and of
stacks (:mod:`.stack_messages`) are separate modules, because few jobs need them.

Reports are numbered from 1 and kept by the agent until the supervisor has them in its record
(:class:`Ack`). A supervisor that reconnects says which it has (:class:`Reattach`) and receives the
others again, so none is lost or doubled. Without a supervisor the agent continues for the lease
that :class:`Configure` gave it, then ends its tasks. Orders to an agent on another host are
numbered too, and sent again after a lost link.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple, Type

from distrun.agent.protocol.causes import Cause as Cause
from distrun.agent.protocol.causes import CauseError as CauseError
from distrun.agent.protocol.causes import Code as Code
from distrun.agent.protocol.causes import Subject as Subject
from distrun.agent.structs import StrEnum as StrEnum
from distrun.agent.structs import Struct as Struct

PROTOCOL = 3
KILL_GRACE = 1.0
"""Seconds from SIGTERM to SIGKILL if no grace was set: after a failure in a group, after
success, after the death of launch, supervisor or agent, and for what an ended task has left."""
UNSENT_REPORTS = "unsent-reports.jsonl"
"""A file beside the logs: the reports of an agent whose supervisor was gone."""
INDEX_SUFFIX = ".idx"
"""The index of a log is beside it, with this suffix in place of `.log`."""
INDEX_RECORD = struct.Struct("<dQ")
"""A record of the index: Unix time in seconds, and the size of the log at that time in bytes."""
LOG_OVERHEAD = 256
"""Bytes that are added to the size of each part of a log: its frame is smaller."""

_HEARTBEATS_PER_LEASE = 8
_LONGEST_HEARTBEAT_INTERVAL = 10.0


def heartbeat_interval(lease: Optional[float]) -> float:
    """Seconds between two heartbeats, for a lease in seconds, or None: without end."""
    if lease is None:
        return _LONGEST_HEARTBEAT_INTERVAL
    return min(_LONGEST_HEARTBEAT_INTERVAL, lease / _HEARTBEATS_PER_LEASE)


class Message(Struct):
    """A message of the protocol. The name of its class says which kind it is."""

    kinds: ClassVar[Dict[str, Type[Message]]] = {}
    """All kinds that have been imported, by name, without the four directions."""
    structs: ClassVar[Dict[str, Type[Struct]]] = {}
    """The fields of an order that are lists of structures, and of which."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if Message not in cls.__bases__:  # the four directions are not messages themselves
            Message.kinds[cls.__name__] = cls


class Order(Message):
    """From the supervisor to an agent."""


class Report(Message):
    """From an agent to the supervisor."""


class Request(Message):
    """From a command to a supervisor."""


class Notice(Message):
    """From a supervisor to the commands."""


# From supervisor to agent ------------------------------------------------------------------


class Configure(Order):
    """The first message on a link.

    The agent creates `folder` for its logs if it does not exist. An empty one means that the
    launching side cannot see this host's files: the agent creates a private folder, named for job
    and `host`, and sends its logs.
    """

    protocol: int
    job_id: str
    folder: str
    lease: Optional[float]
    """Seconds to continue without a supervisor: 0 not at all, None without end."""
    host: str = ""
    variables: Sequence[str] = ()
    """The environment variables that :class:`Hello` must report; `NAME*`: all that begin so."""
    log_limit: Optional[int] = None
    """How many bytes of each log stay on the disk; None: all."""
    former: Sequence[Tuple[str, int]] = ()
    """The last attempts of tasks that a lost agent may have left on this host: the agent ends them
    before it says Hello."""
    grace: float = KILL_GRACE
    """Seconds that tasks have if somebody sends SIGTERM to the agent, as Slurm does before it ends
    a step."""


class Reattach(Order):
    """Reattach to a running agent: it repeats the reports after number `after`, then continues.

    Also sent on a link whose reports noise has damaged; `turn` identifies the request.
    """

    after: int
    turn: int = 0


class Ack(Order, Report):
    """Every message up to number `last` has been recorded or executed, and may be dropped."""

    last: int


class FollowLogs(Order):
    """Send the parts of the tasks' logs that the launching side does not have.

    `have`: the number of bytes by name of file. At most `window` bytes may be in flight.
    """

    have: Dict[str, int]
    window: int


class LogReceived(Order):
    """So many bytes of logs have been written; as many more may be sent."""

    size: int


class HoldPorts(Order):
    """Hold TCP ports for tasks: `free` of any number (`first` to `last`), and `wanted`."""

    free: int
    wanted: List[int]
    first: int = 0
    last: int = 0


class StartTask(Order):
    """Execute one attempt of a task, its output appended to `log` in the agent's folder.

    `env` is set over the agent's own environment, after the names in `unset` are removed, and
    TF_CONFIG to what the parts of `tf_config` are when joined, unless there are none: the longest
    part is the same for all tasks, so the supervisor has it once.
    `marker` is a line for the log, before the attempt's output. `or_home`: use the home folder if
    `workdir` does not exist. `port`: report the ports that the task listens on until this is one
    of them; 0: report none. `binds_port`: its program must find that port free. `is_awaited`: other
    tasks start when it listens there.
    """

    task: str
    attempt: int
    argv: List[str]
    workdir: str
    log: str
    env: Dict[str, str]
    unset: List[str]
    tf_config: Sequence[str] = ()
    notify: bool = True
    marker: str = ""
    or_home: bool = False
    port: int = 0
    binds_port: bool = False
    is_awaited: bool = False


class StopTask(Order):
    """Send `signal` to every process of a task, and SIGKILL after `grace` seconds.

    `grace` 0 kills at once. A second order for the same task can only shorten the time left.
    `with_stacks`: processes that do not handle `signal`, but SIGABRT, get that. So does Python: it
    then prints where its threads are.
    """

    task: str
    signal: int
    grace: float
    with_stacks: bool = False


class MeasureCpu(Order):
    """Report how much processor time each task has used."""


class Shutdown(Order):
    """End every task at once and exit; on another host, once the logs have been sent.

    `preserve_logs`: nobody receives the logs any more; they stay on this host.
    """

    preserve_logs: bool = False


# From agent to supervisor ------------------------------------------------------------------


class Hello(Report):
    """Answers Configure: the facts of this host."""

    pid: int
    hostname: str
    python: str
    cores: float
    """Cores usable by this process: affinity and cgroup quota counted."""
    gpus: List[int]
    at: float
    environ: Dict[str, str] = {}  # noqa: RUF012 - nobody changes a message
    """Those of the variables asked for that are set."""
    address: str = ""
    """The address of this host that the connection came to; empty unless it came by ssh."""
    seen_from: str = ""
    token: str = ""
    """Identifies this agent for :mod:`distrun.agent.reattach`; empty if it cannot reattach."""
    folder: str = ""
    pid_namespace: str = ""
    """The namespace of its process ids, see :func:`distrun.agent.linux.facts.pid_namespace`."""
    files: str = ""
    """The path of the program's files on this host, once they have been sent."""
    libc: str = ""
    """The C library of its programs, see :func:`distrun.agent.linux.facts.libc`."""
    gpu_failure: Optional[Cause] = None


class Reattached(Report):
    """Answers Reattach: orders up to number `last` have been executed. Reports follow."""

    last: int
    turn: int = 0


class Heartbeat(Order, Report):
    """A sign of life of the agent, at regular intervals. The supervisor sends it back.

    The lease is counted from when the one that has come back was sent.
    """

    number: int


class LogData(Report):
    """A part of a file in the agent's folder, from `offset` on."""

    name: str
    offset: int
    data: bytes


class LogEnded(Report):
    """A task has ended: the name of its log in the agent's folder, and its size in bytes.

    -1: somebody has removed the log, perhaps while the task runs.
    """

    name: str
    size: int


class AgentExiting(Report):
    """The agent exits; its tasks have ended."""

    preserved: str
    """The folder that it left; or empty."""
    modules: str = ""
    """The path of the agent's modules, if it was sent them and the host keeps them for later."""


class PortsHeld(Report):
    """Answers HoldPorts: all are held, the chosen free ones and those wanted."""

    chosen: List[int]
    wanted: List[int]


class PortsRefused(Report):
    """Answers HoldPorts: none is held. There is a cause for each port that cannot be held."""

    causes: List[Cause]


class TaskStarted(Report):
    """The task's program has been executed. Its output begins at `log_start` in its log."""

    task: str
    attempt: int
    pid: int
    at: float
    log_start: int = 0


class TaskListening(Report):
    """The TCP ports that the processes of a task listen on have changed."""

    task: str
    attempt: int
    ports: List[int]


class CpuMeasured(Report):
    """Answers MeasureCpu: the seconds that the processes of each task have used."""

    seconds: Dict[str, float]


class TaskNotStarted(Report):
    """The task's program could not be executed; nothing of it runs."""

    task: str
    attempt: int
    cause: Cause
    at: float


class TaskExited(Report):
    """The task's first process has exited, by `code` or by `signal`; others may remain.

    `lived` is in seconds, by a monotonic clock. `oom` shows that the kernel killed it because
    memory ran out. `suspended`: it was suspended when it was asked to stop. `was_stopping`: the
    agent had received the order to stop it. `contact`, of an exit 0: `met`, if another process was
    connected to a port on which it listened; `alone`, if none was; `silent`, if it never listened.
    `child`: the last of its other processes that a signal killed, which distrun did not send; or,
    of a task that hung, one that had failed, and for which nobody had waited.
    `found`: what the host knows about limits and ports that its log names; and where it listened,
    if only on loopback.
    """

    task: str
    attempt: int
    at: float
    code: Optional[int] = None
    signal: Optional[int] = None
    lived: Optional[float] = None
    oom: Optional[Cause] = None
    suspended: bool = False
    was_stopping: bool = True
    contact: str = ""
    child: Optional[Cause] = None
    found: Tuple[Cause, ...] = ()


class TaskEnded(Report):
    """No process of the task is left. What they have used: see `UsageSampled`.

    `left`: how many were at work after the first one had exited 0, and were ended; `left_command`:
    the beginning of their commands.
    """

    task: str
    attempt: int
    at: float
    cpu_seconds: Optional[float] = None
    peak_memory_bytes: Optional[int] = None
    read_bytes: Optional[int] = None
    written_bytes: Optional[int] = None
    left: int = 0
    left_command: str = ""


class UsageSampled(Report):
    """What the processes of a task use at the moment `at`.

    `cpu_seconds` have been used by the attempt so far. Memory is resident memory. The bytes that
    were read and written are those of read and write calls. `gpu_percent` is the mean load of the
    GPUs that they use. `host_idle_seconds` counts, for all cores of the host, how long nobody used
    them. `progress` has the latest values that the task has reported. None: unknown.
    `suspended_pid`: one of them that is suspended (SIGSTOP); None: none is.
    """

    task: str
    attempt: int
    at: float
    cpu_seconds: Optional[float]
    memory_bytes: Optional[int]
    peak_memory_bytes: Optional[int]
    processes: Optional[int]
    read_bytes: Optional[int]
    written_bytes: Optional[int]
    gpu_memory_bytes: Optional[int]
    gpu_percent: Optional[float]
    host_idle_seconds: Optional[float]
    progress: Dict[str, str]
    suspended_pid: Optional[int] = None


class Progress(Report, Notice):
    """Progress that a task reported through DISTRUN_NOTIFY; not numbered, may be lost.

    `ends_at`: when its work is complete, as the supervisor estimates; None: unknown.
    """

    task: str
    values: Dict[str, str]
    at: float
    ends_at: Optional[float] = None


class ProgressIgnored(Report):
    """A part of what was sent to a task's DISTRUN_NOTIFY is ignored; reported once per reason."""

    task: str
    cause: Cause
    at: float


class ChildrenFail(Report):
    """A task's processes fail one after another, and it starts others; once for each attempt."""

    task: str
    cause: Cause
    at: float


NOTICES = (ProgressIgnored, ChildrenFail)
"""What is told of a task at any time while it runs."""


class Fault(Report):
    """The agent itself cannot continue, for example because a disk is full."""

    cause: Cause
    at: float


# From the commands to the supervisor -------------------------------------------------------


class OpenJob(Request):
    """First message to a new supervisor: the job to run, as JSON of the spec, and its id.

    `files` is the manifest of what other hosts are sent; None: nothing.
    """

    job_id: str
    folder: str
    spec: Dict[str, Any]
    source: str
    preflight: bool = True
    """Whether to run the preflight before the first task, if there are several hosts."""
    files: Optional[Dict[str, Any]] = None
    changes: Optional[Sequence[str]] = None
    """The job that is resumed has these `--set`; None: the job is new."""
    assumed_dead: Sequence[str] = ()
    versions: Optional[Dict[str, str]] = None
    """Of distrun, and of Python and TensorFlow of the tasks on the launching machine."""


class Detach(Request):
    """The job no longer ends with this connection."""


class StopJob(Request):
    """Stop the job: `cause` names the command or signal. `grace` None is the spec's."""

    cause: Cause
    signal: int
    grace: Optional[float]
    exit_code: int


class Watch(Request):
    """Send every event from now on, and the progress that tasks report."""


class TakeStacks(Request):
    """Answer with :class:`StacksTaken`. `tasks`: none means all.

    `program`: the path of py-spy; empty: there is none; None: the supervisor's own.
    `seconds`: record for so long, also without a program; 0: look once.
    """

    program: Optional[str]
    tasks: Sequence[str]
    native: bool
    seconds: int


# From the supervisor to the commands -------------------------------------------------------


class JobEvent(Notice):
    """One event, as it is in the record."""

    event: Dict[str, Any]


class StacksTaken(Notice):
    """Answers TakeStacks. `processes`: see :mod:`distrun.job.stacks`. `silent`: hosts, and why."""

    processes: List[Dict[str, Any]]
    silent: Dict[str, str]


class WatchStarted(Notice):
    """Answers Watch, after the latest progress of each task."""


class Refused(Notice):
    """The job could not be created, or a request was not understood; `exit_code` is distrun's."""

    cause: Cause
    exit_code: int
