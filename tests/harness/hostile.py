"""A supervisor between a host that keeps to the protocol and one whose messages are mutated.

The supervisor, the preparation of its hosts, the checks of reports and the record are distrun's
own. Links, processes and files are not there, so that many messages can be tried in a second.
"""

from __future__ import annotations

import copy
import json
import os
import random
import selectors
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrun import events, lifecycle
from distrun.agent import protocol
from distrun.agent.linux.facts import Facts
from distrun.agent.protocol import Cause, Code, Order, Report, probe_messages
from distrun.agent.protocol.channel import ProtocolError, encode_body
from distrun.cli.cause_text import cause_text
from distrun.cli.event_text import EventFormatter
from distrun.cli.job_view import output_json
from distrun.record import _decode_line
from distrun.spec.model import HostSpec, ProgramKind, ProgramSpec, RoleSpec, Spec
from distrun.strategies import STRATEGIES, Role
from distrun.supervisor.failure_analyzer import FailureAnalyzer
from distrun.supervisor.hosts.host_channel import HostChannel
from distrun.supervisor.hosts.report_checker import ReportChecker
from distrun.supervisor.preparation import Preparation
from distrun.supervisor.supervisor import Supervisor

EVIL, GOOD = "evil", "good"
NOW = 1.7e9
STRANGE: Sequence[Any] = (
    *(float("inf"), float("nan"), -1, 0, 1, 2, 1 << 31, 1 << 64, 10**400, 1e300, -1e300, 0.5),
    *(True, None, "", "x", "5", "worker:1", "worker:9", "a\nb", "\ud800", "\udcff"),
    "\x1b]52;c;eA==\x07",
    *("\0", "\u202e", "\x9b31m", "x" * 5000, [], [[]], {}, {"a": 1}, [1, "x"], [None] * 50),
    *({"code": "job_succeeded"}, {"code": "uncoded", "text": "a\nb"}, {"code": []}),
    {"code": "ssh_timed_out", "commands": ["rm -rf ~"]},
)
KINDS = (
    *("Hello", "PortsHeld", "Listening", "Inspected", "Dialled", "StoppedListening", "Fault"),
    *(
        "TaskStarted",
        "TaskExited",
        "TaskEnded",
        "Progress",
        "LogEnded",
        "AgentExiting",
        "Heartbeat",
    ),
    *("Ack", "Reattached", "Damage", "FilesReady", "FilesRequested", "JobEvent", "StopJob", "x"),
)

ORDERS = ("", "HoldPorts", "Inspect", "Listen", "Dial", "StopListening")
"""What the first messages of a host answer; the others are about a task."""


class World:
    """A job of two workers. :meth:`messages` are those of a host for which all goes well."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[bytes] = []
        """The record."""
        self.faults: dict[str, Cause] = {}
        """How hosts broke the protocol; nothing more is taken from them."""
        self.orders: dict[str, list[Order]] = {EVIL: [], GOOD: []}
        self._checkers = {EVIL: ReportChecker(), GOOD: ReportChecker()}
        reader, writer = os.pipe()
        self._channel = HostChannel(reader, writer)
        spec = Spec(
            name="job",
            strategy="multi_worker_mirrored",
            roles=(RoleSpec(role=Role.WORKER, count=2),),
            program=ProgramSpec(kind=ProgramKind.SCRIPT, target="/src/main.py", workdir="/src"),
            hosts=(HostSpec(name=EVIL), HostSpec(name=GOOD)),
            success=STRATEGIES["multi_worker_mirrored"].success,
        )
        self._supervisor = Supervisor.__new__(Supervisor)
        vars(self._supervisor).update(
            _folder=types.SimpleNamespace(
                job_id="job-1", path=folder, plan_file=folder / "plan.json", log_of=self._log_of
            ),
            _spec=spec,
            _cause_text=cause_text,
            _selector=selectors.DefaultSelector(),
            _record=self,
            _record_failed=False,
            _state=lifecycle.JobState(),
            _timers={},
            _hosts=self,
            _tasks={},
            _progress={},
            _stall=None,
            _is_finishing=False,
            _clients=self,
            _launch=None,
            _preparation=Preparation(spec, self.order, folder, emit=self._emit, has_preflight=True),
        )
        vars(self._supervisor)["_analyzer"] = FailureAnalyzer(vars(self._supervisor)["_folder"])
        self._folder = folder
        self._emit(
            events.JobCreated(
                at=NOW,
                job_id="job-1",
                name="job",
                strategy=spec.strategy,
                success=spec.success,
                spec_file="job.yaml",
                supervisor_pid=1,
                timeouts=spec.timeouts,
            )
        )

    def close(self) -> None:
        self._channel.close()
        vars(self._supervisor)["_selector"].close()

    def _log_of(self, task: str) -> Path:
        return self._folder / f"{task}.log"

    def _emit(self, event: events.Event) -> None:
        self._supervisor.emit(event)

    # In place of the record, the pool of hosts and the commands ------------------------------

    def append(self, event: events.Event) -> dict[str, Any]:
        encoded = events.encode(event)
        self.lines.append(json.dumps(encoded).encode("ascii"))
        return encoded

    def broadcast(self, message: protocol.Notice) -> None:
        encode_body(message)

    def order(self, host: str, message: Order) -> None:
        encode_body(message)
        self.orders[host].append(message)
        self._checkers[host].record_order(message)

    def order_all(self, message: Order) -> None:
        for host in self.orders:
            self.order(host, message)

    below_supervisor = None

    def __len__(self) -> int:
        return 2

    # Messages ------------------------------------------------------------------------------

    def messages(self, host: str) -> list[Report]:
        """What a host reports in a job that succeeds. It must be called step by step."""
        number = 0 if host == EVIL else 1
        task, port = f"worker:{number}", 20000 + number
        program = probe_messages.ProgramFacts(
            *("python3", "/src", {}, "/src/main.py"), is_python=True, python="3.11.2"
        )
        return [
            protocol.Hello(
                *(protocol.PROTOCOL, 7, host, "3.11.2", 2.0, [0], NOW),
                *({"PATH": "/bin"}, f"10.0.0.{number}", "10.0.0.9", "token", "/run/a", "ns", "/f"),
            ),
            protocol.PortsHeld([port], []),
            probe_messages.Inspected([program], Facts({"/src": 1 << 40})),
            probe_messages.Listening([], NOW),
            probe_messages.Dialled([]),
            probe_messages.StoppedListening(),
            protocol.TaskStarted(task, 0, 100, NOW),
            protocol.Progress(task, {"STEP": "1", "LOSS": "0.5"}, NOW),
            protocol.TaskExited(
                *(task, 0, None, 9, NOW, 1.0),
                Cause(Code.OOM_KILL_COUNTED, path="/sys/fs", count=1, total=2),
            ),
            protocol.LogEnded(f"worker-{number}.log", 10),
            protocol.TaskEnded(task, 0, NOW),
            protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/run", errno=28), NOW),
        ]

    def may_send(self, host: str, step: int) -> bool:
        """Whether a host was sent the order that the message of this step answers."""
        order = (*ORDERS, "StartTask")[min(step, len(ORDERS))]
        return not order or order in [type(each).__name__ for each in self.orders[host]]

    def receive(self, host: str, body: bytes) -> bool:
        """Take a message as a host's link does. Returns whether it is valid."""
        if host in self.faults:
            return False
        try:
            _, report = self._channel._decode(body)
        except ProtocolError as error:
            self._fail(host, error.cause)
            return False
        cause = self._checkers[host].find_fault(report)
        if cause is not None:
            self._fail(host, cause)
        else:
            self._supervisor.on_report(host, report)
        return cause is None

    def _fail(self, host: str, cause: Cause) -> None:
        self.faults[host] = cause
        self._supervisor.on_report(host, protocol.Fault(cause, NOW))

    # What must hold afterwards -------------------------------------------------------------

    @property
    def record(self) -> list[events.Event]:
        found = [_decode_line(line) for line in self.lines]
        assert None not in found, self.lines[found.index(None)]
        return [event for event in found if event is not None]

    def check(self) -> None:
        """Every reader of the record can show it, and nothing in it reaches a terminal as is."""
        record = self.record
        formatter = EventFormatter()
        for event in record:
            line = formatter.line(event)
            assert line is None or line.isprintable()
            json.dumps(output_json(event), allow_nan=False)
        state = lifecycle.replay(record)
        assert state.tasks.keys() <= {"worker:0", "worker:1"}
        assert GOOD not in self.faults


def mutate(body: bytes, chooser: random.Random) -> bytes:
    """Return a message with one or two odd places, or with its bytes damaged."""
    if chooser.random() < 0.05:
        at = chooser.randrange(len(body))
        return body[:at] + bytes([chooser.randrange(256)]) + body[at + chooser.randrange(3) :]
    fields = json.loads(body)
    for _ in range(chooser.choice((1, 1, 2))):
        fields = _mutated(fields, chooser)
    return json.dumps(fields).encode("ascii")


def _mutated(fields: dict[str, Any], chooser: random.Random) -> Any:
    fields = copy.deepcopy(fields)
    way = chooser.random()
    if way < 0.1:
        fields["type"] = chooser.choice(KINDS)
        return fields
    if way < 0.2:
        fields["seq"] = chooser.choice(STRANGE)
        return fields
    holder: Any = fields
    while True:  # go down to some value
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        if not keys:
            return fields
        key = chooser.choice(list(keys))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or chooser.random() < 0.3:
            break
        holder = inner
    way = chooser.random()
    if way < 0.15:
        del holder[key]
    elif way < 0.2 and isinstance(holder, dict):
        holder[chooser.choice([each for each in STRANGE if isinstance(each, str)])] = inner
    else:
        holder[key] = chooser.choice(STRANGE)
    return fields


def run_mutated(folder: Path, seed: int) -> World:
    """Run the job once, with one message of the evil host mutated; returns the world, closed."""
    chooser = random.Random(seed)
    world = World(folder)
    try:
        steps = len(world.messages(GOOD))
        chosen = chooser.randrange(steps)
        for step in range(steps - 1):  # no fault at its end
            if world.may_send(GOOD, step):
                world.receive(GOOD, encode_body(world.messages(GOOD)[step], step + 1))
            body = encode_body(world.messages(EVIL)[step], step + 1)
            if step == chosen:
                mutated = mutate(body, chooser)
                if chooser.random() < 0.2:
                    world.receive(EVIL, body)
                body = mutated
            world.receive(EVIL, body)
        if chosen == steps - 1:
            world.receive(EVIL, mutate(encode_body(world.messages(EVIL)[-1], steps), chooser))
        world.check()
    finally:
        world.close()
    return world
