"""The messages between supervisor and agent, and between commands and supervisor.

An :class:`Order` goes from the supervisor to an agent, a :class:`Report` from an agent to the
supervisor. A :class:`Request` goes from a command to a supervisor, a :class:`Notice` from a
supervisor to the commands. :mod:`distrun.agent.protocol.channel` says how they travel.

Reports are numbered from 1 and kept by the agent until the supervisor has them in its record
(:class:`Ack`). A supervisor that comes back after a lost link says which it has (:class:`Reattach`)
and gets the rest again, so none is lost or doubled. Without a supervisor the agent carries on
for the lease that :class:`Configure` gave it, then ends its tasks. The other way round, orders to
an agent on another host are numbered too, and sent again after a lost link.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Tuple, Type

from distrun.agent.protocol.causes import Cause, read_causes
from distrun.agent.structs import Struct


class Message(Struct):
    """What travels over a channel. Each kind is known by its class's name."""

    kinds: ClassVar[Dict[str, Type[Message]]] = {}
    """All kinds that have been imported, by name: :class:`Order` and the like are none."""
    parts: ClassVar[Tuple[Tuple[str, Callable[[Any], Any]], ...]] = ()
    """The fields that are no plain JSON: each one's name, and what reads it from JSON."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if Message not in cls.__bases__:  # the four directions are no messages themselves
            Message.kinds[cls.__name__] = cls


def list_of(kind: Type[Struct]) -> Callable[[Any], List[Any]]:
    """Reads a field that is a list of such structures, for :attr:`Message.parts`."""
    return lambda value: [kind(*each) for each in value]


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
    """First message on a link. `folder` is made if need be; `lease` is in seconds.

    On another host `folder` is empty: the agent makes a private one, named for job and `host`.
    """

    protocol: int
    job_id: str
    folder: str
    lease: Optional[float]
    """How long to carry on without a supervisor: 0 not at all, None for ever."""
    host: str = ""
    variables: Sequence[str] = ()
    """Whose values :class:`Hello` is to tell."""


class Reattach(Order):
    """Take up a running agent again: send the reports after number `after`, then go on.

    Also on a link that noise has come into; `turn` tells which of several is answered.
    """

    protocol: int
    job_id: str
    after: int
    turn: int = 0


class Ack(Order, Report):
    """Every message up to number `last` is in the record, or obeyed; it may be forgotten."""

    last: int


class HeartbeatAck(Order):
    """Answers a :class:`Heartbeat`: the lease begins anew at the moment that one was sent."""

    number: int


class FollowLogs(Order):
    """Send what the tasks' logs have and the launching side has not.

    `have` are bytes by name of file; at most `window` bytes are to be under way.
    """

    have: Dict[str, int]
    window: int


class LogReceived(Order):
    """So many bytes of logs have been written down; as many more may come."""

    size: int


class HoldPorts(Order):
    """Reserve TCP ports for tasks: `free` any ones (from `first`..`last`), and `wanted`."""

    free: int
    wanted: List[int]
    first: int = 0
    last: int = 0


class StartTask(Order):
    """Execute one attempt of a task, its output appended to `log` in the agent's folder.

    `env` is set over the agent's own environment, after the names in `unset` are removed.
    `marker` is a line for the log, before the attempt's output. `or_home`: for want of a `workdir`.
    """

    task: str
    attempt: int
    argv: List[str]
    workdir: str
    log: str
    env: Dict[str, str]
    unset: List[str]
    notify: bool = True
    marker: str = ""
    or_home: bool = False


class StopTask(Order):
    """Send `signal` to every process of a task, and SIGKILL after `grace` seconds.

    `grace` 0 kills at once. A second one for the same task shortens what is left, never extends.
    """

    task: str
    signal: int
    grace: float


class Shutdown(Order):
    """End every task at once and exit; on another host, once the logs have been sent.

    `keep`: nobody takes the logs any more; leave them where they are.
    """

    keep: bool = False


# From agent to supervisor ------------------------------------------------------------------


class Hello(Report):
    """Answers Configure: what this host is and has."""

    protocol: int
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
    """By which address of this host ssh came here; empty where it did not come by ssh."""
    seen_from: str = ""
    """From which address."""
    token: str = ""
    """Names this agent to :mod:`distrun.agent.reattach`; empty where its link cannot come back."""
    folder: str = ""
    pid_namespace: str = ""
    """Where the host's process ids hold, see :func:`distrun.agent.linux.facts.pid_namespace`."""
    files: str = ""
    """Where a copy of the program's files will be, once it has been sent."""


class Reattached(Report):
    """Answers Reattach: orders up to number `last` have been obeyed. Reports follow."""

    last: int
    turn: int = 0


class Heartbeat(Report):
    """A sign of life, now and then; the supervisor echoes it."""

    number: int


class LogData(Report):
    """A part of a file in the agent's folder of logs, from `offset` on."""

    name: str
    offset: int
    data: bytes


class LogEnded(Report):
    """A task has ended, and so long is its log, which is called so in the agent's folder."""

    name: str
    size: int


class AgentExiting(Report):
    """The agent exits, and nothing of its tasks is left. `kept`: a folder it leaves, or ''."""

    kept: str


class PortsHeld(Report):
    """Answers HoldPorts: the free ones, then those wanted, all reserved."""

    chosen: List[int]
    wanted: List[int]


class PortsRefused(Report):
    """Answers HoldPorts: none is reserved. There is a cause for each port that cannot be."""

    parts: ClassVar = (("causes", read_causes),)
    causes: List[Cause]


class TaskStarted(Report):
    """The task's program has been executed."""

    task: str
    attempt: int
    pid: int
    at: float


class TaskNotStarted(Report):
    """The task's program could not be executed; nothing of it runs."""

    parts: ClassVar = (("cause", Cause.from_json),)
    task: str
    attempt: int
    cause: Cause
    at: float


class TaskExited(Report):
    """The task's first process has exited, by `code` or by `signal`; others may remain.

    `lived` is in seconds, by a clock that does not jump. `oom` tells why it is thought that the
    kernel killed it for want of memory; `suspended`: it stood still when it was told to stop;
    `was_told`: it had been told to stop before it exited.
    """

    task: str
    attempt: int
    code: Optional[int]
    signal: Optional[int]
    at: float
    lived: Optional[float] = None
    oom: str = ""
    suspended: bool = False
    was_told: bool = True


class TaskEnded(Report):
    """No process of the task is left."""

    task: str
    attempt: int
    at: float


class Progress(Report, Notice):
    """What a task said of itself through DISTRUN_NOTIFY; not numbered, may be lost."""

    task: str
    values: Dict[str, str]
    at: float


class Fault(Report):
    """The agent itself cannot go on: a full disk, a broken host."""

    parts: ClassVar = (("cause", Cause.from_json),)
    cause: Cause
    at: float


# From the commands to the supervisor -------------------------------------------------------


class OpenJob(Request):
    """First message to a new supervisor: the job to run, as JSON of the spec, and its id.

    `files` is the manifest of what other hosts are sent; None: nothing.
    """

    protocol: int
    job_id: str
    folder: str
    spec: Dict[str, Any]
    source: str
    preflight: bool = True
    """Whether the hosts are tried out before the first task starts, where there are several."""
    files: Optional[Dict[str, Any]] = None


class Detach(Request):
    """From now on the job no longer ends with this connection."""


class StopJob(Request):
    """Stop the job: `cause` names the command or signal. `grace` None is the spec's."""

    parts: ClassVar = (("cause", Cause.from_json),)
    cause: Cause
    signal: int
    grace: Optional[float]
    exit_code: int


class Watch(Request):
    """Send every event from now on, and what tasks say of their progress."""


# From the supervisor to the commands -------------------------------------------------------


class JobEvent(Notice):
    """One event of the record, as it stands there."""

    event: Dict[str, Any]


class WatchStarted(Notice):
    """Answers Watch, behind the latest progress of each task."""


class Refused(Notice):
    """The job could not be created. `exit_code` is distrun's own."""

    parts: ClassVar = (("cause", Cause.from_json),)
    cause: Cause
    exit_code: int
