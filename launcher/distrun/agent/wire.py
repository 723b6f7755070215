"""The protocol between supervisor and agent: typed messages in frames, and a channel for them.

A frame is a length (4 bytes, big endian) and that many bytes of JSON: an object with the
message's `type`, its fields and, for an agent's reports, `seq`. Unknown fields are ignored, so
that a newer side can add some; a change of meaning raises PROTOCOL. Strings may hold bytes that
are no UTF-8, as Python's `surrogateescape` keeps them.

Reports are numbered from 1 and kept by the agent until the supervisor has them in its record
(:class:`Ack`). A supervisor that comes back after a lost link says which it has (:class:`Attach`)
and gets the rest again, so none is lost or doubled. Without a supervisor the agent carries on
for the lease that :class:`Configure` gave it, then ends its tasks. The other way round, orders to
an agent on another host are numbered too, and sent again after a lost link.

A message with bytes in it (`data`) has them behind its JSON and a newline, as they are.
"""

from __future__ import annotations

import collections
import json
import os
import selectors
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Type

from distrun.agent.record import Record

if TYPE_CHECKING:
    from typing import Deque

PROTOCOL = 1
MAX_FRAME = 64 * 1024 * 1024
LAST_WORDS = "last-words.jsonl"
"""A file beside the logs: what an agent had to say when its supervisor was gone."""
LOG_OVERHEAD = 256
"""Bytes by which a part of a log counts for more than its own: its frame takes less."""
_LENGTH = struct.Struct(">I")


class WireError(Exception):
    """The other side broke the protocol: not a distrun of this version, or noise on the link."""


# From supervisor to agent ------------------------------------------------------------------


class Configure(Record):
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


class Attach(Record):
    """Take up a running agent again: send the reports after number `after`, then go on.

    Also on a link that noise has come into; `turn` tells which of several is answered.
    """

    protocol: int
    job_id: str
    after: int
    turn: int = 0


class Ack(Record):
    """Every message up to number `last` is in the record, or obeyed; it may be forgotten."""

    last: int


class Echo(Record):
    """Answers a :class:`Beat`: the lease begins anew at the moment that one was sent."""

    number: int


class FollowLogs(Record):
    """Send what the tasks' logs have and the launching side has not.

    `have` are bytes by name of file; at most `window` bytes are to be under way.
    """

    have: Dict[str, int]
    window: int


class LogTaken(Record):
    """So many bytes of logs have been written down; as many more may come."""

    size: int


class HoldPorts(Record):
    """Reserve TCP ports for tasks: `free` any ones (from `first`..`last`), and `wanted`."""

    free: int
    wanted: List[int]
    first: int = 0
    last: int = 0


class StartTask(Record):
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


class StopTask(Record):
    """Send `signal` to every process of a task, and SIGKILL after `grace` seconds.

    `grace` 0 kills at once. A second one for the same task shortens what is left, never extends.
    """

    task: str
    signal: int
    grace: float


class Shutdown(Record):
    """End every task at once and exit; on another host, once the logs have been sent.

    `keep`: nobody takes the logs any more; leave them where they are.
    """

    keep: bool = False


# From agent to supervisor ------------------------------------------------------------------


class Hello(Record):
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
    door: str = ""
    """The socket by which to come back after a lost link, see :mod:`distrun.agent.door`."""
    folder: str = ""
    files: str = ""
    """Where a copy of the program's files will be, once it has been sent."""


class Attached(Record):
    """Answers Attach: orders up to number `last` have been obeyed. Reports follow."""

    last: int
    turn: int = 0


class Beat(Record):
    """A sign of life, now and then; the supervisor echoes it."""

    number: int


class LogData(Record):
    """A part of a file in the agent's folder of logs, from `offset` on."""

    name: str
    offset: int
    data: bytes


class Farewell(Record):
    """The agent exits, and nothing of its tasks is left. `kept`: a folder it leaves, or ''."""

    kept: str


class PortsHeld(Record):
    """Answers HoldPorts: the free ones, then those wanted, all reserved."""

    chosen: List[int]
    wanted: List[int]


class PortsRefused(Record):
    """Answers HoldPorts: none is reserved. `taken` maps a port (as text) to who has it."""

    taken: Dict[str, str]
    reason: str
    number: int = 0
    """The errno of what was in the way; 0 where it was the want of free ports."""


class TaskStarted(Record):
    """The task's program has been executed."""

    task: str
    attempt: int
    pid: int
    at: float


class TaskNotStarted(Record):
    """The task's program could not be executed; nothing of it runs."""

    task: str
    attempt: int
    reason: str
    at: float


class TaskExited(Record):
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


class TaskEnded(Record):
    """No process of the task is left."""

    task: str
    attempt: int
    at: float


class Progress(Record):
    """What a task said of itself through DISTRUN_NOTIFY; not numbered, may be lost."""

    task: str
    values: Dict[str, str]
    at: float


class Fault(Record):
    """The agent itself cannot go on: a full disk, a broken host. `reason` is for people."""

    reason: str
    at: float


# From the commands to the supervisor -------------------------------------------------------


class OpenJob(Record):
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


class Detach(Record):
    """From now on the job no longer ends with this connection."""


class StopJob(Record):
    """Stop the job: `reason` names the command or signal. `grace` None is the spec's."""

    reason: str
    signal: int
    grace: Optional[float]
    exit_code: int


class Watch(Record):
    """Send every event from now on, and what tasks say of their progress."""


# From the supervisor to the commands -------------------------------------------------------


class Happened(Record):
    """One event of the record, as it stands there."""

    event: Dict[str, Any]


class Watching(Record):
    """Answers Watch, behind the latest progress of each task."""


class Refused(Record):
    """The job could not be made. `exit_code` is distrun's own."""

    message: str
    hint: Optional[str]
    exit_code: int


Message = Any
"""One of this module's records."""

_TYPES: Dict[str, Type[Any]] = {
    kind.__name__: kind
    for kind in (
        Configure, Attach, Ack, Echo, FollowLogs, LogTaken, HoldPorts, StartTask, StopTask,
        Shutdown, Hello, Attached, Beat, LogData, Farewell, PortsHeld, PortsRefused, TaskStarted,
        TaskNotStarted, TaskExited, TaskEnded, Progress, Fault, OpenJob, Detach, StopJob, Watch,
        Watching, Happened, Refused,
    )
}  # fmt: skip
_PARTS: Dict[str, Dict[str, Type[Any]]] = {}
"""What lists in messages are of, by message and field."""


def _kind(name: str) -> Type[Any]:
    """The type of a message.

    Making types takes time, and a job on one machine needs neither those of the preflight nor
    those of files.
    """
    if name not in _TYPES:
        from distrun.agent import filemessages, questions

        _TYPES.update({kind.__name__: kind for kind in filemessages.ALL})
        _TYPES.update(questions.TYPES)
        _PARTS.update(questions.PARTS)
    return _TYPES[name]


def encode(message: Message, seq: int = 0) -> bytes:
    """A message as one frame. `seq` 0 is for messages that are not numbered."""
    fields: Dict[str, Any] = message._asdict()
    fields["type"] = type(message).__name__
    if seq:
        fields["seq"] = seq
    attached = fields.pop("data", None)
    body = json.dumps(fields, separators=(",", ":")).encode("ascii")
    if attached is not None:
        body += b"\n" + attached
    if len(body) > MAX_FRAME:
        raise WireError("a message of {} bytes is over the limit".format(len(body)))
    return _LENGTH.pack(len(body)) + body


def _decode(body: bytes) -> Tuple[int, Message]:
    try:
        text, newline, attached = body.partition(b"\n")
        fields = json.loads(text)
        if newline:
            fields["data"] = attached
        kind = _kind(fields.pop("type"))
        seq = int(fields.pop("seq", 0))
        for name, part in _PARTS.get(kind.__name__, {}).items():
            fields[name] = [part(*each) for each in fields[name]]
        known = {name: fields[name] for name in kind._fields if name in fields}
        return seq, kind(**known)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError("not a message of this protocol: {!r}".format(body[:80])) from error


class Channel:
    """Messages over a pair of descriptors, never blocking.

    Register :attr:`reader` with a selector, call :meth:`receive` when it is readable, and
    :meth:`watch_writing` before each wait. The channel owns its descriptors; the same may be
    given for both ways.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self.reader = reader
        self.writer = os.dup(reader) if writer == reader else writer
        self.ended = False
        """Whether the other side has closed its end; what it had sent has been received."""
        self.broken = False
        """Whether the other side no longer takes what is sent."""
        self._incoming = bytearray()
        self._outgoing: Deque[bytes] = collections.deque()
        os.set_blocking(reader, False)
        os.set_blocking(self.writer, False)

    @property
    def pending(self) -> bool:
        return bool(self._outgoing) and not self.broken

    def send(self, message: Message, seq: int = 0) -> None:
        """Queue a message and write as much as the link takes now."""
        if not self.broken:
            self.send_bytes(encode(message, seq))

    def send_bytes(self, block: bytes) -> None:
        """The same with bytes that are no message."""
        self._outgoing.append(block)
        self.flush()

    def flush(self) -> None:
        while self._outgoing and not self.broken:
            block = self._outgoing[0]
            try:
                written = os.write(self.writer, block)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
                self._outgoing.clear()
                return
            if written < len(block):
                self._outgoing[0] = block[written:]
            else:
                self._outgoing.popleft()

    def watch_writing(self, selector: selectors.BaseSelector) -> None:
        """Have the selector wait for the link to take more, but only while there is more.

        The key's data is :meth:`flush`, to be called when it is ready.
        """
        registered = self.writer in selector.get_map()
        if self.pending and not registered:
            selector.register(self.writer, selectors.EVENT_WRITE, self.flush)
        elif registered and not self.pending:
            selector.unregister(self.writer)

    def receive(self) -> List[Tuple[int, Message]]:
        """Whole messages that have arrived, with their numbers. Sets :attr:`ended` at the end.

        Raises:
            WireError: what came is no frame of this protocol.
        """
        self._fill()
        return self._frames()

    def _fill(self) -> None:
        while not self.ended:
            try:
                block = os.read(self.reader, 1 << 18)
            except BlockingIOError:
                break
            except OSError:
                block = b""
            if not block:
                self.ended = True
            self._incoming += block

    def _frames(self) -> List[Tuple[int, Message]]:
        messages = []
        position = 0
        while len(self._incoming) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming, position)
            if length > MAX_FRAME:
                raise WireError("a frame of {} bytes: noise on the link".format(length))
            start = position + _LENGTH.size
            if len(self._incoming) < start + length:
                break
            messages.append(_decode(bytes(self._incoming[start : start + length])))
            position = start + length
        del self._incoming[:position]
        return messages

    def close(self) -> None:
        self.broken = self.ended = True
        os.close(self.reader)
        os.close(self.writer)
