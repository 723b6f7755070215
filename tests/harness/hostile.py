"""A supervisor between a host that keeps to the protocol and one whose messages are mutated.

The supervisor, its hosts' links, its rounds, the checks of reports and the record are
distrun's own. Agents are emulated, processes are not there, and the clock is simulated, so that
many messages can be tried in a second.
"""

import copy
import dataclasses
import hashlib
import json
import os
import random
import re
import selectors
import shutil
import signal
import struct
import types
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import (
    Cause,
    Code,
    Order,
    Report,
    file_messages,
    probe_messages,
    stack_messages,
)
from distrun.agent.protocol.causes import CauseError
from distrun.agent.protocol.channel import (
    HEADER,
    MARK,
    ChecksummedSender,
    ProtocolError,
    encode_body,
)
from distrun.job import events
from distrun.job import folder as job_folder
from distrun.job.folder import JobFolder, JobStore
from distrun.job.json_output import output_json
from distrun.job.record import _decode_line
from distrun.logs.merge import merged
from distrun.logs.task_log import TaskLog
from distrun.logs.view import View
from distrun.spec.host_spec import HostSpec
from distrun.spec.model import Placement, ProgramKind, ProgramSpec, RoleSpec, Spec, Timeouts
from distrun.strategies import STRATEGIES, Role
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver
from distrun.supervisor.hosts.pool import HostPool
from distrun.supervisor.hosts.reach import Connection, Lifetime, Login, Purpose, Reach, agent_exited
from distrun.supervisor.supervisor import Supervisor
from distrun.sync.manifest import FileEntry, Manifest
from distrun.words.events import EventFormatter
from harness import odd_values
from harness.odd_values import ODD
from harness.values import not_none

EVIL, GOOD = "evil", "good"
HOSTS = (EVIL, GOOD, "h1", "h2", "sp1", "sp2", "sp3")
NOW = 1.7e9
FILE = b"print(1)\n"
DIGEST = hashlib.sha256(FILE).hexdigest()
BEGIN = b"\nbegin\n"
NO_PROCESSES = types.SimpleNamespace(
    Ending=lambda *_, **__: types.SimpleNamespace(step=lambda: True, left=[]),
    reap=lambda *_: None,
    DEATH_SECONDS=0.0,
)
NO_CLIENTS = types.SimpleNamespace(add=bool, watching=set(), broadcast=encode_body)
HEARTBEAT = protocol.heartbeat_interval(60.0)
STRANGE_PROGRESS = ("9" * 4096, "1e308", "-1e308", "1e999", "nan", "inf", "1e-320", "1" * 30)
STRANGE_TIMES = (NOW, 0.0, -1.0, 1e300, -1e300, 4e10, float("inf"), float("nan"))
STRANGE_SIZES = (0, 3, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
REPORTS = sorted(
    name
    for name, kind in protocol.Message.kinds.items()
    if issubclass(kind, Report)
    and kind.__module__.startswith("distrun.agent")
    and name not in ("FilesWritten", "FileRead", "FileReadEnd", "Measured", "GpusUsed")
)
"""The kinds of messages that an agent sends in a job. Files are fetched from a process of their
own, only `doctor` has hosts measure, and of GPUs an agent hears from a fork."""
KINDS = (*REPORTS, "Damage", "JobEvent", "StopJob", "StartTask", "x")
WAYS_PER_RUN = 8
"""How many mutations of a message are tried in a run."""


E = TypeVar("E", bound=events.Event)
Tamper = Callable[[bytes], Sequence[bytes]]
"""Returns what is sent in place of the body of a message."""


def kind(body: bytes) -> str:
    return str(json.loads(body.partition(b"\n")[0])["type"])


def without(*kinds: str) -> Tamper:
    return lambda body: [] if kind(body) in kinds else [body]


def changed(name: str, **fields: Any) -> Tamper:
    def tamper(body: bytes) -> Sequence[bytes]:
        found = json.loads(body.partition(b"\n")[0])
        return [json.dumps({**found, **fields}).encode()] if found["type"] == name else [body]

    return tamper


class Agent:
    """Answers orders as an agent for which all goes well; refuses once, by a message `refusal`."""

    def __init__(self, host: str, tamper: Tamper, refusal: str = "") -> None:
        self.host = host
        self.gpus = [0]
        self.running: dict[str, int] = {}
        """The tasks that have started and not exited, each with its attempt."""
        self.has_exited = False
        self.is_immortal = False
        """Whether it lives on, whatever it is told."""
        self._has_files = False
        self._stacks_asked = 0
        self._tamper = tamper
        self._refusal = refusal
        self._channel: ChecksummedSender | None = None
        self._frames = self._heartbeats = self._last_order = 0
        self._kept: list[Report] = []

    def connect(self) -> Connection:
        reader, agent_writer = os.pipe()
        agent_reader, writer = os.pipe()
        self._channel = ChecksummedSender(agent_reader, agent_writer)
        self._frames = 0
        self._channel.send_bytes(BEGIN)
        return Connection(
            types.SimpleNamespace(  # type: ignore[arg-type]
                pid=0, poll=lambda: 0 if self.has_exited else None, kill=self.exit, wait=int
            ),
            ChecksummedReceiver(reader, writer, BEGIN),
            log_window=1 << 16,
        )

    def exit(self) -> None:
        if not self.has_exited and not self.is_immortal:
            self.has_exited = True
            self.close()

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def receive(self) -> bool:
        """Answer the orders that have arrived. Returns whether there were any."""
        if self._channel is None:
            return False
        self._channel.flush()
        orders = self._channel.receive()
        for seq, order in orders:
            if seq:
                if seq <= self._last_order:
                    continue
                self._last_order = seq
                self._send(protocol.Ack(seq), is_kept=False)
            if isinstance(order, protocol.Reattach):
                self._send(protocol.Reattached(self._last_order, order.turn), is_kept=False)
                for number, report in enumerate(self._kept, 1):
                    if number > order.after:
                        self._send_body(encode_body(report, number))
            for report in self._answers(order):
                self._send(report)
        return bool(orders) or (self._channel is not None and self._channel.pending)

    def beat(self) -> None:
        self._heartbeats += 1
        self._send(protocol.Heartbeat(self._heartbeats), is_kept=False)

    def end_tasks(self, code: int | None = 0, signal: int | None = None) -> None:
        for task, attempt in self.running.items():
            log = task.replace(":", "-") + ".log"
            self._send(protocol.LogData(log, 3, b"end\n"), is_kept=False)
            oom = Cause(Code.OOM_KILL_COUNTED, path="/sys/fs", count=1, total=2) if signal else None
            self._send(protocol.TaskExited(task, attempt, NOW, code, signal, 1.0, oom))
            self._send(protocol.TaskEnded(task, attempt, NOW, 1.5, 1 << 21, 4096, 10))
            self._send(protocol.LogEnded(log, 7))
        self.running.clear()

    def _answers(self, order: Order) -> Sequence[Report]:
        name = re.sub("([A-Z])", r"_\1", type(order).__name__).lower()
        answer = getattr(self, f"_on{name}", None)
        return answer(order) if answer is not None else []

    def _on_configure(self, _: protocol.Configure) -> Sequence[Report]:
        return [
            protocol.Hello(
                *(7, self.host, "3.11.2", 2.0, self.gpus, NOW, {"PATH": "/bin"}),
                *(f"10.0.0.{HOSTS.index(self.host)}", "10.0.0.9", "token", "/run/a", "ns"),
                "/run/a/files",
            )
        ]

    def _on_hold_ports(self, order: protocol.HoldPorts) -> Sequence[Report]:
        if self._refusal == "PortsRefused":
            return [protocol.PortsRefused([Cause(Code.PORT_TAKEN, port=2222, name="nginx", pid=5)])]
        return [protocol.PortsHeld(list(range(20000, 20000 + order.free)), order.wanted)]

    def _on_file_list(self, order: file_messages.FileList) -> Sequence[Report]:
        if not order.last:
            return []
        if self._refusal == "FilesRefused":
            full = Cause(Code.FILE_NOT_WRITTEN, path="main.py", errno=28)
            requested = file_messages.FilesRequested([0], 0)
            return [requested, file_messages.FilesRefused(full, NOW)]
        return [file_messages.FilesRequested([0], 0)]

    def _on_file_data(self, order: file_messages.FileData) -> Sequence[Report]:
        received = file_messages.FileDataReceived(len(order.data))
        if self._refusal == "FilesRefused":
            return [received]
        self._has_files = True
        return [received, file_messages.FilesReady(NOW)]

    def _on_inspect(self, order: probe_messages.Inspect) -> Sequence[Report]:
        facts = probe_messages.ProgramFacts(
            *("python3", "/src", "/src/main.py"), is_python=True, digest=DIGEST, python="3.11.2"
        )
        return [probe_messages.Inspected([facts for _ in order.programs], {"/src": 1 << 40})]

    def _on_listen(self, _: probe_messages.Listen) -> Sequence[Report]:
        return [probe_messages.Listening([], NOW)]

    def _on_dial(self, _: probe_messages.Dial) -> Sequence[Report]:
        return [probe_messages.Dialled([])]

    def _on_stop_listening(self, _: probe_messages.StopListening) -> Sequence[Report]:
        return [probe_messages.StoppedListening()]

    def _on_measure_cpu(self, _: protocol.MeasureCpu) -> Sequence[Report]:
        return [protocol.CpuMeasured(dict.fromkeys(self.running, 1.5))]

    def _on_dump_stacks(self, order: stack_messages.DumpStacks) -> Sequence[Report]:
        self._stacks_asked = order.number
        return [stack_messages.ProgramRequested(order.digest)]

    def _on_program_data(self, _: stack_messages.ProgramData) -> Sequence[Report]:
        thread = {"name": "main", "is_main": True, "holds_gil": False, "frames": [["f", "a", 3]]}
        stacks = [{"task": each, "pid": 100, "threads": [thread]} for each in self.running]
        return [stack_messages.StacksDumped(self._stacks_asked, json.dumps(stacks))]

    def _on_stop_task(self, order: protocol.StopTask) -> Sequence[Report]:
        self.end_tasks(None, order.signal)
        return []

    def _on_shutdown(self, _: protocol.Shutdown) -> Sequence[Report]:
        self.end_tasks(None, 9)
        if self._has_files:
            self._has_files = False
            self._send(file_messages.FilesPreserved("/run/kept", 1, 10, NOW))
        self._send(protocol.AgentExiting("", "/run/b"))
        self.exit()
        return []

    def _on_start_task(self, order: protocol.StartTask) -> Sequence[Report]:
        if self._refusal == "TaskNotStarted":
            cause = Cause(Code.PROGRAM_NOT_FOUND, name="python3")
            return [protocol.TaskNotStarted(order.task, order.attempt, cause, NOW)]
        self.running[order.task] = order.attempt
        self._send(protocol.TaskStarted(order.task, order.attempt, 100, NOW))
        self._send(protocol.TaskListening(order.task, order.attempt, [order.port or 6006]))
        values = {"STEP": "1", "LOSS": "0.5"}
        self._send(protocol.Progress(order.task, values, NOW), is_kept=False)
        excess = Cause(Code.PROGRESS_EXCESSIVE, count=200, total=9)
        self._send(protocol.ProgressIgnored(order.task, excess, NOW))
        failed = Cause(Code.CHILDREN_FAIL, status=1, count=10, seconds=5.0)
        self._send(protocol.ChildrenFail(order.task, failed, NOW))
        used = (1.5, 1 << 20, 1 << 21, 2, 4096, 10, None, None, None)
        self._send(protocol.UsageSampled(order.task, order.attempt, NOW, *used, {"STEP": "1"}))
        self._send(protocol.LogData(order.log, 0, b"go\n"), is_kept=False)
        index = order.log.replace(".log", protocol.INDEX_SUFFIX)
        self._send(protocol.LogData(index, 0, struct.pack("<dQ", NOW, 3)), is_kept=False)
        return []

    def _send(self, report: Report, *, is_kept: bool = True) -> None:
        if is_kept:
            self._kept.append(report)
        self._send_body(encode_body(report, len(self._kept) if is_kept else 0))

    def _send_body(self, body: bytes) -> None:
        for each in self._tamper(body):
            if self._channel is None:
                return
            frame = struct.pack(">I", len(each)) + each
            fields = HEADER.pack(MARK, self._frames, len(frame), zlib.crc32(frame))
            self._frames += 1
            self._channel.send_bytes(fields + struct.pack(">I", zlib.crc32(fields)) + frame)


class EmulatedReach(Reach):
    lifetime = Lifetime.LEASE
    connect_timeout = 10.0

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def open(self, job_id: str, login: Login) -> Connection:
        if self.agent.has_exited or login.purpose is Purpose.FORMER:  # no late logs
            raise CauseError(Cause(Code.SSH_NOT_STARTED, errno=111))
        if login.purpose is Purpose.REATTACH:
            self.agent.close()
        return self.agent.connect()

    def address(self, hello: Any, *_: Any) -> str | None:
        return str(hello.address) or None

    def diagnose(
        self, connection: Connection, status: int | None, *, was_up: bool
    ) -> tuple[Cause, bool]:
        return agent_exited(status or 0) if was_up else Cause(Code.SSH_TIMED_OUT), False


def _link(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # it was that of the folder that is listed
        return ""


class InstantSelector(selectors.EpollSelector):
    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(0)


class World:
    """A job with one task on the host `evil`, and the other tasks on `good`.

    Without `evil_role`, that is the evaluator, without which the job can succeed. With `has_copies`
    an earlier agent has begun the log of that task, as after a resume or a replacement. `changes`
    are other values for the spec.
    """

    def __init__(
        self,
        folder: Path,
        tamper: Tamper = lambda body: [body],
        *,
        evil_role: Role = Role.EVALUATOR,
        refusal: str = "",
        sends_files: bool = True,
        has_preflight: bool = True,
        has_copies: bool = False,
        timeouts: Timeouts | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.now = 1000.0
        self.folder = folder
        self._job = job_folder.create(JobStore(folder).new_folder("job"), b"")
        self._log_of = self._job.log_of
        good_roles = [each for each in (Role.CHIEF, Role.WORKER, Role.PS) if each is not evil_role]
        self.good_tasks = [f"{role.value}:0" for role in good_roles]
        self.evil_task = f"{evil_role.value}:0"
        if has_copies:
            self._log_of(self.evil_task).write_bytes(b"of an earlier agent\n")
        spec = Spec(
            name="job",
            strategy="parameter_server",
            roles=tuple(RoleSpec(role=each, count=1) for each in (*good_roles, evil_role)),
            program=ProgramSpec(
                kind=ProgramKind.SCRIPT,
                target=str(folder / "src" / "main.py"),
                workdir=str(folder / "src"),
                sync_base=str(folder / "src"),
            ),
            hosts=(HostSpec(name=GOOD, slots=len(good_roles)), HostSpec(name=EVIL, slots=1)),
            placement=Placement.PACK,
            success=STRATEGIES["parameter_server"].success,
            timeouts=timeouts or Timeouts(),
        )
        spec = dataclasses.replace(spec, **(changes or {}))
        self.agents = {each.name: Agent(each.name, lambda body: [body]) for each in spec.hosts}
        self.agents[EVIL] = Agent(EVIL, tamper, refusal)
        self._signals = os.pipe()
        replaced: dict[str, Any] = {
            "distrun.supervisor.hosts.pool.processes": NO_PROCESSES,
            "distrun.supervisor.job_hosts.make_reach": lambda host, *_: EmulatedReach(
                self.agents[host.name]
            ),
            "distrun.supervisor.supervisor.Clients": lambda *_: NO_CLIENTS,
            "selectors.DefaultSelector": InstantSelector,
            "distrun.agent.linux.syscalls.signal_pipe": lambda _: self._signals[0],
            # Where no process can be made, questions are answered at once: a fork has a real clock.
            "distrun.agent.linux.syscalls.fork_with_pipe": mock.Mock(side_effect=BlockingIOError),
            "time.monotonic": lambda: self.now,
            "time.time": lambda: NOW + self.now,
        }
        self._patches = [mock.patch(target, value) for target, value in replaced.items()]
        # `distrun.job` may be the function of that name: Python 3.10 would look in it.
        self._patches.append(mock.patch.object(JobFolder, "listen", bool))
        try:
            for patch in self._patches:
                patch.start()
            self._start(spec, sends_files=sends_files, has_preflight=has_preflight)
        except BaseException:  # the clock of other tests must go on
            mock.patch.stopall()
            raise

    def _start(self, spec: Spec, *, sends_files: bool, has_preflight: bool) -> None:
        self._supervisor = Supervisor(
            self._job,
            spec,
            self,  # type: ignore[arg-type]
            protocol.OpenJob("", "", {}, "", preflight=has_preflight),
            manifest=self._make_manifest() if sends_files else None,
        )
        created = events.JobCreated(
            at=NOW, job_id=self._job.job_id, name="job", strategy=spec.strategy,
            success=spec.success, spec_file="job.yaml", supervisor_pid=1, timeouts=spec.timeouts,
            restart=spec.restart,
        )  # fmt: skip
        self._supervisor.emit(created)
        self._supervisor._prepare()

    def _make_manifest(self) -> Manifest:
        source = self.folder / "src"
        source.mkdir(exist_ok=True)
        (source / "main.py").write_bytes(FILE)
        file = FileEntry(path="main.py", mode=0o644, size=len(FILE), digest=DIGEST)
        return Manifest(base=str(source), files=(file,))

    @property
    def _pool(self) -> HostPool:
        return self._supervisor._hosts

    def close(self) -> None:
        for patch in self._patches:
            patch.stop()
        for agent in self.agents.values():
            agent.close()
        self._supervisor._running.close()
        for host in self._pool._hosts.values():
            if host.link.connection is not None:
                host.link.connection.channel.close()
        self._supervisor._loop.close()
        for descriptor in self._signals:
            os.close(descriptor)
        self._supervisor._job.record._log.close()
        # A supervisor keeps its folder and the lock open until its process ends.
        lock = str(self._job.path / "supervisor.lock")
        opened = (int(each) for each in os.listdir("/proc/self/fd"))
        links = {each: _link(each) for each in opened}
        for descriptor in (not_none(self._job.descriptor), *(n for n in links if links[n] == lock)):
            os.close(descriptor)
        shutil.rmtree(self._job.path)

    # Running --------------------------------------------------------------------------------

    @property
    def progress(self) -> dict[str, protocol.Progress]:
        return {each.task: each for each in self._supervisor._running.progress}

    @property
    def state(self) -> lifecycle.JobState:
        return self._supervisor._job.state

    def settle(self) -> None:
        """Deliver messages in both directions until there are no more."""
        is_busy = True
        while is_busy:
            was_ready = self._supervisor._loop.turn()
            if not self.state.phase.is_final:
                self._supervisor._finish_if_released()
            answered = [agent.receive() for agent in self.agents.values()]
            is_busy = any(answered) or was_ready

    def measure_cpu(self) -> None:
        self._pool.order_all(protocol.MeasureCpu())
        self.settle()

    def ask_for_stacks(self) -> None:
        program = self.folder / "py-spy"
        program.write_bytes(b"a program")
        stacks = self._supervisor._running.stacks
        stacks.ask(list(self.state.tasks), str(program), lambda _: None)
        self.settle()

    def advance(self, seconds: float = HEARTBEAT, beating: Sequence[str] | None = None) -> None:
        """Let time pass; then these hosts send a heartbeat, or all."""
        self.now += seconds
        for name in self.agents if beating is None else beating:
            self.agents[name].beat()
        self.settle()
        self._pool.check_exits()
        self.settle()

    def until(self, condition: Callable[[], object], seconds: float = 300.0) -> None:
        """Let time pass until something holds. Raises AssertionError if the job ends before."""
        due = self.now + seconds
        while not condition():
            assert self.now < due, [line[:300] for line in self.lines[-20:]]
            assert self.state.outcome is None, self.state.outcome
            self.advance(2.0)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds / HEARTBEAT)):
            self.advance()

    def stop(self, grace: float | None = None, code: int = 137) -> None:
        cause = Cause(Code.STOPPED_BY_COMMAND, name="distrun kill")
        self._supervisor._stops.receive(protocol.StopJob(cause, signal.SIGTERM, grace, code))
        self.settle()

    def receive(self, host: str, message: Report | dict[str, Any]) -> bool:
        """Have a host send one more message. Returns whether it is valid."""
        agent = self.agents[host]
        number = len(agent._kept) + 1
        if isinstance(message, Report):
            agent._send_body(encode_body(message, number))
        else:
            agent._send_body(json.dumps({"seq": number, **message}).encode())
        agent._kept.append(protocol.AgentExiting(""))  # never sent
        self.settle()
        return host not in self.faults

    def accepts(self, body: bytes) -> bool:
        """Return whether the evil host may send this. If not, there must be words for why."""
        host = self._pool._hosts[EVIL]
        assert host.link.connection is not None
        known = vars(host.orders)  # which note what they accept
        kept = {n: copy.copy(each) for n, each in known.items() if isinstance(each, Collection)}
        try:
            _, report = host.link.connection.channel._decode(body)
            cause = host.reports.find_violation(report)
        except ProtocolError as error:
            cause = error.cause
        known.update(kept)
        if cause is None:
            return True
        fault = events.encode(events.HostFault(at=NOW, host=EVIL, cause=cause))
        decoded = _decode_line(json.dumps(fault).encode("ascii"))
        assert decoded is not None
        ((line, _),) = EventFormatter().lines(decoded)
        assert line.isprintable()
        return False

    def run(self, *, is_cut_off: bool = True, most_steps: int = 80) -> None:
        """Run the job to its end. The evil host may be cut off if the job waits for it."""
        self.settle()
        for _ in range(3):
            self.advance()
        for agent in self.agents.values():
            agent.end_tasks()
        for step in range(most_steps):
            if self.state.phase.is_final:
                return
            if step == 50 and is_cut_off:  # the host may live, and not end its task
                self.agents[EVIL].exit()
            self.advance()
        raise AssertionError(f"the job does not end: {self.state}")

    # What must hold afterwards -------------------------------------------------------------

    @property
    def lines(self) -> list[bytes]:
        return self._job.events_file.read_bytes().splitlines()

    @property
    def record(self) -> list[events.Event]:
        found = [_decode_line(line) for line in self.lines]
        assert None not in found, self.lines[found.index(None)]
        return [event for event in found if event is not None]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.record if isinstance(event, kind)]

    @property
    def faults(self) -> dict[str, Cause]:
        return {event.host: event.cause for event in self.of(events.HostFault)}

    def check(self) -> None:
        """Every reader of the record can show it, and nothing in it reaches a terminal as is."""
        record = self.record
        formatter = EventFormatter()
        for event in record:
            assert all(line.isprintable() for line, _ in formatter.lines(event))
            json.dumps(output_json(event), allow_nan=False)
        log = TaskLog(
            self.evil_task,
            str(self._log_of(self.evil_task)),
            str(self._log_of(self.evil_task).with_suffix(protocol.INDEX_SUFFIX)),
        )
        for since in (None, NOW):
            b"".join(merged([log], View([log.task], timestamps=True), since=since))
        state = lifecycle.replay(record)
        assert state.tasks.keys() <= {*self.good_tasks, self.evil_task}
        assert GOOD not in self.faults, self.faults[GOOD]
        for event in record:
            assert not isinstance(event, (events.HostLost, events.LinkLost)) or event.host != GOOD
        assert state.outcome is not None
        assert state.tasks or state.outcome.origin is events.Origin.DISTRUN
        is_started = not any(isinstance(event, events.TaskNotStarted) for event in record)
        if state.tasks and is_started and self.evil_task == "evaluator:0":
            assert all(state.tasks[task].code == 0 for task in self.good_tasks), state.tasks
            assert state.outcome.exit_code == 0, state.outcome


def mutate(body: bytes, chooser: random.Random) -> bytes:
    """Return a message with one or two odd places, or with its bytes damaged."""
    if chooser.random() < 0.05:
        # A message's length differs between runs, which a draw must not (hypothesis).
        at = int(chooser.random() * len(body))
        return body[:at] + bytes([chooser.randrange(256)]) + body[at + chooser.randrange(3) :]
    text, newline, attached = body.partition(b"\n")
    fields = json.loads(text)
    if str(fields.get("name")).endswith(protocol.INDEX_SUFFIX) and chooser.random() < 0.5:
        numbers = [(chooser.choice(STRANGE_TIMES), chooser.choice(STRANGE_SIZES)) for _ in range(3)]
        records = b"".join(protocol.INDEX_RECORD.pack(*each) for each in numbers)
        return text + newline + records[: chooser.choice((16, 20, 47, 48))]
    for _ in range(chooser.choice((1, 1, 2))):
        fields = _mutated(fields, chooser)
    if newline and chooser.random() < 0.2:
        newline = b""
    return odd_values.dumps(fields) + newline + attached


def _mutated(fields: dict[str, Any], chooser: random.Random) -> Any:
    fields = copy.deepcopy(fields)
    way = chooser.random()
    if way < 0.1:
        fields["type"] = chooser.choice(KINDS)
        return fields
    if way < 0.2:
        fields["seq"] = chooser.choice(ODD)
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
        holder[chooser.choice([each for each in ODD if isinstance(each, str)])] = inner
    else:
        is_progress = fields.get("values") is holder and chooser.random() < 0.5
        holder[key] = chooser.choice(STRANGE_PROGRESS if is_progress else ODD)
    return fields


def run_mutated(folder: Path, kind: str, chooser: random.Random) -> World:
    """Run a job once, and mutate a message of that kind from the evil host in several ways.

    The first way that the supervisor accepts is sent, since that can do most harm. If it accepts
    none, it must name each as a fault of the host, and the last one is sent.
    """
    sent: list[bytes] = []
    is_doubled = chooser.random() < 0.2
    wanted = f'"type":"{kind}"'.encode()
    skipped = chooser.choice((0, 0, 0, 1)) if kind in ("Heartbeat", "Ack") else 0
    if kind == "LogData":
        skipped = chooser.choice((0, 1))  # the second part is the index

    def tamper(body: bytes) -> list[bytes]:
        nonlocal skipped
        if sent or wanted not in body:
            return [body]
        if skipped:
            skipped -= 1
            return [body]
        ways = [mutate(body, chooser) for _ in range(WAYS_PER_RUN)]
        sent.append(next((each for each in ways if world.accepts(each)), ways[-1]))
        return [body, sent[0]] if is_doubled else [sent[0]]

    module = protocol.Message.kinds[kind].__module__
    world = World(
        folder,
        tamper,
        evil_role=chooser.choice((Role.EVALUATOR, Role.WORKER)),
        refusal=kind if kind in ("PortsRefused", "FilesRefused", "TaskNotStarted") else "",
        sends_files=module == file_messages.__name__,
        has_preflight=module == probe_messages.__name__,
        has_copies=chooser.random() < 0.5,
    )
    evil = world.agents[EVIL]
    try:
        world.settle()
        has_noise = kind == "Reattached" or chooser.random() < 0.1
        if has_noise and evil._channel is not None:
            evil._channel.send_bytes(HEADER.pack(MARK, 5, 50, 1) + b"\0" * 4)
            evil._frames += 1
        if kind == "CpuMeasured":
            world.measure_cpu()
        if module == stack_messages.__name__:
            world.ask_for_stacks()
        if kind == "Fault":
            evil._send(protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/run", errno=28), NOW))
        world.run()
        assert sent, kind
        world.check()
    finally:
        world.close()
    return world
