"""A host that is broken or hostile: each attack is a fault of that host, and of no other."""

from __future__ import annotations

import ast
import json
import math
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrun import lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, probe_messages
from distrun.agent.protocol.channel import encode
from distrun.job import events
from distrun.supervisor.hosts import report_checker
from distrun.supervisor.hosts.host_channel import Damage, HostChannel
from distrun.supervisor.hosts.link import LinkState
from distrun.words.causes import ADVICE, TEXTS, cause_advice, cause_text
from distrun.words.events import EventFormatter
from harness.examples import examples
from harness.hostile import EVIL, GOOD, REPORTS, World, run_mutated
from harness.values import not_none

AGENT = Path(protocol.__file__).resolve().parents[1]
EXIT = {"type": "TaskExited", "task": "evaluator:0", "attempt": 0, "code": 0, "signal": None}


@pytest.fixture
def world(hostile: Callable[..., World]) -> Iterator[World]:
    """A job whose tasks have started on both hosts."""
    made = hostile()
    made.settle()
    assert made.state.tasks["evaluator:0"].pid == 100
    yield made
    made.run()
    made.check()


@pytest.mark.parametrize(
    "change",
    [
        {"seq": float("inf")},
        {"seq": "2"},
        {"at": "yesterday"},
        {"at": float("nan")},
        {"code": 256},
        {"code": 0, "signal": 9},
        {"signal": 65, "code": None},
        {"attempt": 1},
        {"suspended": 1},
        {"oom": {"code": "job_succeeded"}},
        {"oom": {"code": "oom_kill_logged", "commands": ["rm -rf ~"]}},
        {"task": "worker:0"},
        {"task": "evaluator:0\nworker:0"},
        {"task": "tensorboard"},
        {"type": "JobEnded"},
        {"type": "Hello"},
    ],
    ids=lambda change: json.dumps(change)[:50],
)
def test_an_odd_message_is_a_fault_of_its_host(world: World, change: dict[str, Any]) -> None:
    assert not world.receive(EVIL, {**EXIT, "at": 1.7e9, **change})
    faults = world.of(events.HostFault)
    assert [fault.host for fault in faults] == [EVIL]
    assert not_none(EventFormatter().line(faults[0])).count(f"{EVIL} cannot continue: ") == 1
    tasks = lifecycle.replay(world.record).tasks
    assert all(task.code is None and task.signal is None for task in tasks.values())
    # The other host goes on.
    values = {"STEP": "7"}
    assert world.receive(GOOD, protocol.Progress("worker:0", values, 1.7e9))
    assert world.progress["worker:0"].values == {"LOSS": "0.5", **values}  # as was reported before


@pytest.mark.parametrize(
    "message",
    [
        protocol.TaskStarted("evaluator:0", 0, 100, 1.7e9),
        protocol.TaskEnded("evaluator:0", 0, 1.7e9),
        protocol.PortsHeld([20000], []),
        protocol.LogEnded("worker-0.log", 5),
        protocol.LogEnded("../plan.json", 5),
        protocol.LogData("chief-0.log", 0, b"of a task elsewhere"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_report_that_nothing_asked_for_is_a_fault(world: World, message: Any) -> None:
    assert not world.receive(EVIL, message)
    assert world.receive(GOOD, protocol.LogData("chief-0.log", 3, b"true"))


def test_a_task_that_reports_too_much_is_no_fault_of_its_host(world: World) -> None:
    values = {f"KEY{number}": "x" * 9000 for number in range(300)}
    assert world.receive(EVIL, protocol.Progress("evaluator:0", values, 1.7e9))
    assert world.receive(EVIL, protocol.TaskExited("evaluator:0", 0, 1.7e9, 0))
    world.agents[EVIL].running.clear()
    assert max(map(len, world.lines)) < 1 << 20


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
        connection = not_none(world._pool._hosts[EVIL].link.connection)
        assert len(connection.channel._outgoing) < 1000
    world.settle()
    assert world.faults == {}


def test_a_host_whose_link_ends_again_and_again_is_reconnected_ever_more_slowly(
    world: World,
) -> None:
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


@pytest.mark.parametrize("rate", [-1.0, 1e16, math.inf, math.nan])
def test_a_rate_that_no_link_has_is_refused(rate: float) -> None:
    checker = report_checker.ReportChecker()
    checker.find_fault(protocol.Hello(protocol.PROTOCOL, 1, "h", "3.8.0", 1.0, [], 0.0))
    checker.record_order(probe_messages.Measure([], "", 1.0))
    assert checker.find_fault(probe_messages.Measured(rate)) is not None
    checker.record_order(probe_messages.Measure([], "", 1.0))
    assert checker.find_fault(probe_messages.Measured(1e9)) is None


def test_agents_may_send_the_codes_that_they_make() -> None:
    made: set[str] = set()
    for path in AGENT.rglob("*.py"):
        if path.name == "causes.py":  # which defines them
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Code":
                made.add(node.attr)
    allowed = {code.name for code in report_checker._AGENT_CODES}
    assert made - {"UNCODED"} <= allowed


def test_long_texts_of_a_host_are_cut(world: World) -> None:
    """So are long lists, and those deep in a cause."""
    long = Cause(Code.AGENT_DEFECT, text="A" * 20_000, hosts=("x",) * 2000)
    deep = Cause(Code.AGENT_DEFECT, text="boom", within=(long, *[Cause(Code.LINK_CLOSED)] * 500))
    for _ in range(20):
        world.receive(EVIL, protocol.Fault(deep, 1.7e9))
    faults = world.of(events.HostFault)
    assert len(faults) < 10
    assert len(json.dumps(events.encode(faults[0]))) < 6000
    assert len(faults[0].cause.within) == 8
    assert faults[0].cause.within[0].text.endswith("A ... (cut)")
    assert len(cause_text(faults[0].cause.within[0])) < 5000


def test_many_damaged_messages_are_asked_for_once(world: World) -> None:
    host = world._pool._hosts[EVIL]
    channel = not_none(host.link.connection).channel
    with mock.patch.object(channel, "send") as send:
        host.on_messages(not_none(host.link.connection), [(0, Damage())] * 1000)
    assert [type(call.args[0]) for call in send.call_args_list] == [protocol.Reattach]
    host.reports.is_replaying = False


def test_a_defect_that_a_message_meets_is_no_fault_of_its_host(world: World) -> None:
    handle = world._supervisor.on_report

    def fail(host: str, report: protocol.Report) -> None:
        if isinstance(report, protocol.Progress):
            raise KeyError("worker:9")
        handle(host, report)

    planted = mock.patch.object(world._supervisor, "on_report", fail)
    with planted, pytest.raises(KeyError, match="worker:9"):
        world.receive(EVIL, protocol.Progress("evaluator:0", {"STEP": "2"}, 1.7e9))
    assert EVIL not in world.faults


# Memory and time ---------------------------------------------------------------------------


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


# What is shown -----------------------------------------------------------------------------

TEXTS_OF_HOSTS = (
    "/p", "a\nb", "distrun: done\n", "\x1b[31m", "\x9b", "\u202e", "1-2", "", "\x85x\u2028y", "\0",
)  # fmt: skip
FIELDS = ("task", "host", "path", "name", "version", "expected", "text")
LISTS = ("commands", "hosts", "addresses", "tasks")
MOST, LEAST = 1 << 62, -(1 << 62)
NUMBERS: tuple[dict[str, Any], ...] = (
    {},
    {"port": 65535, "pid": 1 << 31, "errno": 4095, "signal": 64, "status": 255, "seconds": 1e11,
     "count": MOST, "total": MOST},
    {"errno": -4095, "status": -255, "seconds": -1e11, "count": LEAST, "total": LEAST},
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS_OF_HOSTS, ids=ascii)
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
