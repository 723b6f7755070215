"""A host that is broken or hostile: each attack is a fault of that host, and of no other."""

import dataclasses
import json
import os
import random
import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.examples import examples
from harness.hostile import EVIL, GOOD, REPORTS, Tamper, World, changed, kind, run_mutated, without
from harness.parts.agent import Loop, protocol
from harness.parts.channel import encode, encode_body
from harness.parts.hosts import Damage, HostChannel, Lifetime, LinkState, Orders, ReportReceiver
from harness.parts.job import events
from harness.parts.lifecycle import JobPhase, lifecycle
from harness.parts.protocol import Cause, Code, FileDataReceived, Subject
from harness.parts.spec import ProgramKind, ProgramSpec, Timeouts
from harness.parts.words import ADVICE, TEXTS, EventFormatter, cause_advice, cause_text
from harness.values import not_none

EXIT = {"type": "TaskExited", "task": "evaluator:0", "attempt": 0, "code": 0, "signal": None}


@pytest.fixture
def world(hostile: Callable[..., World]) -> Iterator[World]:
    made = hostile()
    made.settle()
    assert made.state.tasks["evaluator:0"].pid == 100
    yield made
    made.run()
    made.check()


@pytest.mark.parametrize(
    "change",
    [
        {"seq": float("inf")}, {"at": "yesterday"}, {"code": 0, "signal": 9},
        {"oom": {"code": "oom_kill_logged", "commands": ["rm -rf ~"]}}, {"task": "worker:0"},
        {"task": "evaluator:0\nworker:0"}, {"type": "Hello"},
    ],
    ids=lambda change: json.dumps(change)[:50],
)  # fmt: skip
def test_an_odd_message_is_a_fault_of_its_host(world: World, change: dict[str, Any]) -> None:
    assert not world.receive(EVIL, {**EXIT, "at": 1.7e9, **change})
    faults = world.of(events.HostFault)
    assert [fault.host for fault in faults] == [EVIL]
    ((line, _),) = EventFormatter().lines(faults[0])
    assert line.count(f"{EVIL} cannot continue: ") == 1
    tasks = lifecycle.replay(world.record).tasks
    assert all(task.code is None and task.signal is None for task in tasks.values())
    # The other host goes on.
    values = {"STEP": "7"}
    assert world.receive(GOOD, protocol.Progress("worker:0", values, 1.7e9))
    assert world.progress["worker:0"].values == {"LOSS": "0.5", **values}  # as was reported before


@pytest.mark.parametrize(
    "message",
    [
        protocol.TaskStarted("evaluator:0", 0, 100, 1.7e9), protocol.PortsHeld([20000], []),
        protocol.PortsRefused([]), protocol.LogEnded("../plan.json", 5),
        protocol.LogData("chief-0.log", 0, b"of a task elsewhere"),
    ],
)  # fmt: skip
def test_a_report_that_nothing_asked_for_is_a_fault(world: World, message: Any) -> None:
    assert not world.receive(EVIL, message)
    assert world.receive(GOOD, protocol.LogData("chief-0.log", 3, b"true"))


def test_what_comes_behind_a_fault_waits_for_what_is_asked_about_it() -> None:
    orders = Orders(Loop(), None, Lifetime.LEASE, mock.Mock())
    assert orders.check(FileDataReceived(9)), "no list of files was sent"
    link, handle = mock.Mock(is_ignored=False, is_asking=True), mock.Mock()
    receiver = ReportReceiver(link, mock.Mock(), orders, handle, mock.Mock())
    beats = [protocol.Heartbeat(number) for number in (1, 2)]
    receiver.receive(link.connection, [(0, each) for each in beats])
    link.is_asking = False
    receiver.receive_held(link.connection)
    assert [each.args[1] for each in handle.mock_calls] == beats


@pytest.mark.parametrize("count", [1, 2])
def test_the_end_of_an_attempt_is_told_once(world: World, count: int) -> None:
    exited = protocol.TaskExited("evaluator:0", 0, 1.7e9, code=0)
    ends = [exited, protocol.TaskEnded("evaluator:0", 0, 1.7e9)][:count]
    assert all(world.receive(EVIL, each) for each in ends)
    assert not world.receive(EVIL, ends[-1])


def test_a_time_too_late_once_it_is_corrected_is_the_latest_of_the_record(world: World) -> None:
    assert world.receive(EVIL, protocol.Progress("evaluator:0", {"STEP": "1"}, 1e11))
    assert world.progress["evaluator:0"].at == 1e11


def test_a_host_that_reads_nothing_cannot_have_its_orders_repeated(world: World) -> None:
    """It claims damage again and again, and to have been asked to repeat its reports."""
    agent = world.agents[EVIL]
    reads_nothing = mock.patch.object(agent, "receive", return_value=False)
    with reads_nothing:
        for _ in range(100):
            world.measure_cpu()
        for turn in range(1, 51):
            agent._frames += 1
            agent._send(protocol.Reattached(0, turn), is_kept=False)
            world.settle()
        assert len(not_none(world._pool._hosts[EVIL].link.connection).channel._outgoing) < 1000
    world.settle()
    assert world.faults == {}


def test_a_host_whose_link_ends_again_and_again_is_reconnected_more_slowly(world: World) -> None:
    host = world._pool._hosts[EVIL]
    for step in range(240):
        if host.link.connection is not None and host.link.state is LinkState.UP:
            host.link.connection.process.poll = lambda: 1  # type: ignore[method-assign]
            world.agents[EVIL].close()
        world.advance(0.25, [GOOD] if step % 20 == 0 else [])
    assert 5 <= len(world.of(events.LinkLost)) <= 20  # within a minute


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(REPORTS), chooser=st.randoms(use_true_random=False))
def test_mutated_messages_harm_nothing(
    tmp_path_factory: pytest.TempPathFactory, kind: str, chooser: random.Random
) -> None:
    run_mutated(tmp_path_factory.getbasetemp(), kind, chooser)


def test_long_texts_of_a_host_are_cut(world: World) -> None:
    """So are those deep in a cause, unless that is deeper than any cause of an agent."""
    long = Cause(Code.AGENT_DEFECT, text="A" * 200_000)
    deep = Cause(Code.AGENT_DEFECT, text="boom", within=(long,))
    assert world.receive(EVIL, protocol.TaskExited("evaluator:0", 0, 1.7e9, code=1, found=(long,)))
    assert world.state.tasks["evaluator:0"].exit.found[0].text.endswith("(cut)")
    world.receive(EVIL, protocol.Fault(deep, 1.7e9))
    (fault,) = world.of(events.HostFault)
    assert fault.cause.within[0].text.endswith("A ... (cut)")
    assert len(cause_text(fault.cause.within[0])) < 5000
    for _ in range(20):
        deep = Cause(Code.AGENT_DEFECT, within=(deep,))
    assert not world.receive(EVIL, protocol.Fault(deep, 1.7e9))
    assert world.of(events.HostFault)[-1].cause.code is Code.REPORT_INVALID


def test_many_damaged_messages_are_asked_for_once(world: World) -> None:
    host = world._pool._hosts[EVIL]
    connection = not_none(host.link.connection)
    with mock.patch.object(connection.channel, "send") as send:
        host.on_messages(connection, [(0, Damage())] * 1000)
    assert [type(call.args[0]) for call in send.call_args_list] == [protocol.Reattach]
    host.reports.is_replaying = False


def test_a_link_that_always_has_more_is_read_in_turns(tmp_path: Path) -> None:
    """A file is such a link: reading it never blocks."""
    path = tmp_path / "endless"
    frame = encode(protocol.Progress("worker:0", {"STEP": "1" * 10_000}, 1.7e9))
    path.write_bytes(frame * (3_500_000 // len(frame)))
    channel = HostChannel(os.open(path, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    tracemalloc.start()
    turns = 0
    while channel.receive():
        turns += 1
    assert turns >= 3
    assert channel.ended
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    channel.close()


FIELDS = ("task", "host", "path", "name", "version", "expected", "text")
LISTS = ("commands", "hosts", "addresses", "tasks")
MOST, LEAST = 1 << 62, -(1 << 62)
NUMBERS: tuple[dict[str, Any], ...] = (
    {},
    {"port": 65535, "pid": 1 << 31, "errno": 4095, "signal": 64, "status": 255, "seconds": 1e11,
     "count": MOST, "total": MOST},
    {"errno": -4095, "status": -255, "seconds": -1e11, "count": LEAST, "total": LEAST},
)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["distrun: done\n", "\x1b[31m", "\x85\u202e\u2028y", "", "1-2"], ids=ascii
)
def test_no_text_of_a_host_looks_like_a_line_of_distruns(text: str) -> None:
    """Every code has words, which have known fields alone: another raises AttributeError."""
    assert TEXTS.keys() == set(Code) >= ADVICE.keys()
    texts: Any = {**dict.fromkeys(FIELDS, text), **dict.fromkeys(LISTS, (text, text))}
    for code in Code:
        inner = [Cause(code, **texts, **each) for each in NUMBERS]
        for cause in (Cause(code), *inner, Cause(code, **texts, within=tuple(inner))):
            for shown in (cause_text(cause), cause_advice(cause) or ""):
                assert all(line.isprintable() for line in shown.split("\n")), cause
        probe = Cause(Code.PROBE_DIED)
        assert cause_text(Cause(code, path="/p", name="n", version="1", within=(probe,))), code


def test_further_lines_of_a_text_are_indented() -> None:
    cause = Cause(Code.AGENT_DEFECT, text="boom\ndistrun: the job succeeded\x1b[2J\rx")
    host = Cause(Code.HOST_FAILED, host="h1", within=(cause,))
    lines = cause_text(host).split("\n")
    assert lines[0].startswith("h1 cannot continue: ")
    assert lines[1:] == ["    distrun: the job succeeded\\x1b[2J\\rx"]


Hostile = Callable[..., World]
LOG = "evaluator-0.log"
WITHOUT_LIMITS = dataclasses.replace(Timeouts(), start=None, link=None)


def log_sender(size: int) -> Tamper:
    """Send so much of the evaluator's log after each heartbeat, and neither its end nor its own."""
    sent = 0

    def tamper(body: bytes) -> Sequence[bytes]:
        nonlocal sent
        if kind(body) in ("LogData", "LogEnded", "AgentExiting"):
            return []
        if kind(body) != "Heartbeat":
            return [body]
        sent += size
        part = protocol.LogData(LOG, sent - size, b"x" * size)
        return [body, encode_body(part, 0)]

    return tamper


def short_log() -> Tamper:
    sender = log_sender(130_000)
    ended = encode_body(protocol.LogEnded(LOG, 1), 0)
    return lambda body: [ended] if kind(body) == "LogEnded" else sender(body)


STOP, ORDER = Code.STOP_NOT_EXECUTED, Code.ORDER_NOT_ANSWERED
CASES: dict[str, tuple[Callable[[], Tamper], Timeouts, Code, str]] = {
    "the log arrives byte by byte": (partial(log_sender, 1), Timeouts(), STOP, ""),
    "more follows the end of a log": (short_log, Timeouts(), STOP, ""),
    "no TaskEnded": (partial(without, "TaskEnded"), Timeouts(), STOP, ""),
    "no AgentExiting": (partial(without, "AgentExiting"), Timeouts(), STOP, ""),
    "no PortsHeld": (partial(without, "PortsHeld"), Timeouts(), ORDER, "HoldPorts"),
    "no Inspected": (partial(without, "Inspected"), Timeouts(), ORDER, "Inspect"),
    "no Dialled": (partial(without, "Dialled"), WITHOUT_LIMITS, ORDER, "Dial"),
    "no FilesReady": (partial(without, "FilesReady"), WITHOUT_LIMITS, ORDER, ""),
    "the job starts too late": (
        partial(without, "PortsHeld"), dataclasses.replace(Timeouts(), start=30.0),
        Code.START_TIMED_OUT,
        "evil cannot be prepared: its agent did not answer HoldPorts within 30 s"),
}  # fmt: skip
"""What the host does, the job's limits, its fault or the job's end, and the order that it names."""


def incomplete_logs(world: World) -> list[Cause]:
    return [each.cause for each in world.of(events.LogsIncomplete)]


@pytest.mark.parametrize("case", CASES)
def test_what_a_host_holds_back_is_its_fault_and_keeps_no_job(hostile: Hostile, case: str) -> None:
    """It lives on, whatever it is told."""
    tamper, timeouts, code, order = CASES[case]
    world = hostile(tamper(), timeouts=timeouts)
    world.agents[EVIL].is_immortal = True
    world.run(is_cut_off=False, most_steps=1000)
    cause = world.faults[EVIL] if EVIL in world.faults else not_none(world.state.outcome).cause
    assert cause.code is code
    assert order in cause_text(cause)
    why = [cause_text(each.cause) for each in world.of(events.HostLost)]
    assert code is not STOP or not any("have ended by themselves" in each for each in why)
    lost = [each.code for cause in incomplete_logs(world) for each in cause.chain()]
    assert lost == [Code.LOGS_LEFT_ON_HOST, Code.LOGS_TOO_SLOW] or "byte by byte" not in case
    world.check()


def test_a_second_request_to_stop_does_not_wait_for_logs(hostile: Hostile) -> None:
    world = hostile(log_sender(300_000))
    world.agents[EVIL].is_immortal = True
    world.settle()
    world.wait(22.5)
    for agent in world.agents.values():
        agent.end_tasks()
    world.wait(750.0)
    assert not world.faults
    for _ in range(2):
        world.stop()
    asked = world.now
    while not world.state.phase.is_final and world.now < asked + 120:
        world.advance()
    assert world.state.phase is JobPhase.SUCCEEDED, "all tasks have"
    (left,) = incomplete_logs(world)
    assert [each.code for each in left.chain()] == [Code.LOGS_LEFT_ON_HOST, Code.LOGS_TOO_SLOW]


def test_a_sigterm_that_the_launch_command_gets_too_is_one_request(hostile: Hostile) -> None:
    """Slurm sends it to all processes of a step. A second request would kill the job."""
    world = hostile()
    world.settle()
    world._supervisor._stops.on_sigterm()
    world.stop(None, 128 + signal.SIGTERM)
    assert len(world.of(events.StopRequested)) == 1
    assert not world.state.killing


def test_logs_that_are_left_on_their_host_are_in_its_folder(hostile: Hostile) -> None:
    """Its agent keeps to the protocol, but the link is too slow."""
    world = hostile(without("LogData", "LogEnded"))
    agent = world.agents[EVIL]

    def on_shutdown(order: protocol.Shutdown) -> Sequence[protocol.Report]:
        agent.end_tasks(None, 9)
        if order.preserve_logs:
            agent._send(protocol.AgentExiting("/run/kept"))
            agent.exit()
        return []

    agent._on_shutdown = on_shutdown  # type: ignore[method-assign, assignment]
    world.run(is_cut_off=False)
    assert EVIL not in world.faults
    (left,) = incomplete_logs(world)
    assert left.code is Code.LOGS_LEFT_ON_HOST
    assert cause_text(left).endswith("what is missing is in /run/kept on evil")


def test_a_start_that_is_not_answered_is_a_fault_of_its_host(hostile: Hostile) -> None:
    never = without("TaskStarted", "TaskListening", "UsageSampled")
    world = hostile(never, timeouts=WITHOUT_LIMITS)
    world.wait(375.0)
    assert "StartTask of evaluator:0 within 300 s" in cause_text(world.faults[EVIL])


@pytest.mark.parametrize("has_preflight", [True, False])
def test_that_gpus_are_not_known_is_told(has_preflight: bool, hostile: Hostile) -> None:
    failure = {"code": "gpus_unknown", "status": 18, "text": "no driver"}
    world = hostile(changed("Hello", gpu_failure=failure), has_preflight=has_preflight)
    world.run()
    found = [each for each in world.of(events.PreflightFound) if each.subject is Subject.GPUS]
    assert [(each.host, each.cause.code) for each in found] == [(EVIL, Code.GPUS_UNKNOWN)]


@pytest.mark.parametrize("kills", [1, 2])
def test_a_second_kill_waits_for_no_results(kills: int, hostile: Callable[..., World]) -> None:
    program = ProgramSpec(kind=ProgramKind.MODULE, target="train", workdir="/", results=("out",))
    world = hostile(changes={"program": program}, sends_files=False)
    world.settle()
    for agent in world.agents.values():  # its tasks ignore SIGTERM
        agent._on_stop_task = lambda order: []  # type: ignore[method-assign]
    for _ in range(kills):
        world.stop()
    world.run()
    assert len(world.of(events.ResultsFetched)) == (kills == 1)


@pytest.mark.parametrize(
    ("rate", "earliest", "latest"), [(1, 120, 125), (8 << 10, 235, 245), (20 << 10, 7200, 7201)]
)
def test_logs_extend_a_shutdown_in_proportion(rate: int, earliest: int, latest: int) -> None:
    now, late = 1000, []
    loop = Loop(lambda: float(now))
    times = Orders(loop, 60.0, Lifetime.LEASE, lambda name, _task: late.append(name))
    times.record(protocol.Shutdown())
    while not late:
        now += 1
        times.record_log(rate)
        loop.turn(0.0)
    loop.close()
    assert earliest <= now - 1000 <= latest


@pytest.mark.parametrize(
    ("lease", "late"), [(None, [120, 620]), (60.0, [120, 120])], ids=["no lease", "lease"]
)
def test_an_order_waits_for_a_lost_link(lease: float | None, late: list[int]) -> None:
    now, found, began = 1000.0, list[float](), 0.0
    loop = Loop(lambda: now)
    for pause in (0, 500):
        on_late = lambda *_: found.append(now - began)  # noqa: B023, E731
        times = Orders(loop, lease, Lifetime.LEASE, on_late)
        times.record(protocol.HoldPorts(1, []))
        now += 100
        times.clear()  # another agent begins
        times.record(protocol.HoldPorts(1, []))
        began = now
        times.pause()
        for second in range(1000):
            now += 1
            if second == pause:
                times.resume()
            loop.turn(0.0)
    loop.close()
    assert found == [pytest.approx(each, abs=3) for each in late]
