"""A host that sends signs of life, but not what the job waits for, does not keep the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.channel import encode_body
from distrun.job import events
from distrun.lifecycle import JobPhase
from distrun.spec.model import Timeouts
from distrun.supervisor.hosts import deadlines
from distrun.supervisor.hosts.deadlines import OrderDeadlines
from distrun.words.causes import cause_text
from harness.hostile import EVIL, Tamper, World, kind, without
from harness.values import not_none

Hostile = Callable[..., World]
LOG = "evaluator-0.log"
ORDERS = {
    "PortsHeld": "HoldPorts", "Listening": "Listen", "StoppedListening": "StopListening",
    "Inspected": "Inspect",
}  # fmt: skip
"""The orders that are answered so."""
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
    """The log has ended, and more of it follows."""
    sender = log_sender(130_000)
    ended = encode_body(protocol.LogEnded(LOG, 1), 0)
    return lambda body: [ended] if kind(body) == "LogEnded" else sender(body)


CASES: dict[str, tuple[Callable[[], Tamper], Timeouts, Code]] = {
    "the log arrives byte by byte": (lambda: log_sender(1), Timeouts(), Code.STOP_NOT_EXECUTED),
    "more follows the end of a log": (short_log, Timeouts(), Code.STOP_NOT_EXECUTED),
    **{
        f"{kind} is never sent": (partial(without, kind), Timeouts(), Code.STOP_NOT_EXECUTED)
        for kind in ("TaskEnded", "AgentExiting")
    },
    **{
        f"{kind} is never sent": (partial(without, kind), Timeouts(), Code.ORDER_NOT_ANSWERED)
        for kind in ("PortsHeld", "Listening", "StoppedListening", "Inspected")
    },
    **{
        f"without limits, {kind} is never sent": (
            partial(without, kind), WITHOUT_LIMITS, Code.ORDER_NOT_ANSWERED
        )
        for kind in ("PortsHeld", "Dialled", "FilesReady")
    },
}  # fmt: skip


def run(world: World) -> World:
    """The job at its end. The evil host lives on, whatever it is told."""
    world.agents[EVIL].is_immortal = True
    world.run(is_cut_off=False, most_steps=1000)
    return world


def incomplete_logs(world: World) -> list[Cause]:
    return [each.cause for each in world.of(events.LogsIncomplete)]


@pytest.mark.parametrize("case", CASES)
def test_what_a_host_holds_back_is_its_fault_and_does_not_keep_the_job(
    hostile: Hostile, case: str
) -> None:
    tamper, timeouts, code = CASES[case]
    world = run(hostile(tamper(), timeouts=timeouts))
    fault = world.faults[EVIL]
    assert fault.code is code
    kept_back = case.removeprefix("without limits, ").partition(" ")[0]
    assert ORDERS.get(kept_back, "") in cause_text(fault)
    lost = [cause.code for cause in incomplete_logs(world)]
    assert lost == [Code.LOGS_TOO_SLOW] or "byte by byte" not in case
    world.check()


def test_a_log_without_end_does_not_keep_the_job(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "LONGEST_SHUTDOWN", 300.0)
    monkeypatch.setattr(deadlines, "SLOWEST_LINK", 1024)
    world = run(hostile(log_sender(20_000)))
    assert world.faults[EVIL].code is Code.STOP_NOT_EXECUTED
    world.check()


def test_a_second_request_to_stop_does_not_wait_for_logs(hostile: Hostile) -> None:
    world = hostile(log_sender(300_000))
    world.agents[EVIL].is_immortal = True
    world.settle()
    for _ in range(3):
        world.advance()
    for agent in world.agents.values():
        agent.end_tasks()
    for _ in range(100):
        world.advance()
    assert not world.faults
    for _ in range(2):
        world.stop()
    asked = world.now
    while not world.state.phase.is_final and world.now < asked + 120:
        world.advance()
    assert world.state.phase is JobPhase.SUCCEEDED, "all tasks have"
    assert [cause.code for cause in incomplete_logs(world)] == [Code.LOGS_TOO_SLOW]


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
    assert cause_text(left).endswith("all of them are in /run/kept on evil")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Hello", "its agent did not answer at all"),
        ("FilesReady", "it did not receive the program's files"),
        ("PortsHeld", "its agent did not answer HoldPorts"),
    ],
)
def test_a_job_that_starts_too_late_names_the_host_that_did_not_answer(
    hostile: Hostile, answer: str, told: str
) -> None:
    timeouts = dataclasses.replace(Timeouts(), start=30.0)
    world = run(hostile(without(answer), timeouts=timeouts))
    cause = not_none(world.state.outcome).cause
    assert cause.code is Code.START_TIMED_OUT
    assert f"evil cannot be prepared: {told} within 30 s" in cause_text(cause)
    world.check()


def test_a_start_that_is_not_answered_is_a_fault_of_its_host(hostile: Hostile) -> None:
    never = without("TaskStarted", "TaskListening", "UsageSampled")
    world = hostile(never, timeouts=WITHOUT_LIMITS)
    for _ in range(50):
        world.advance()
    assert "StartTask of evaluator:0 within 300 s" in cause_text(world.faults[EVIL])


def test_heartbeats_of_an_agent_that_does_not_reattach_renew_no_lease(hostile: Hostile) -> None:
    world = hostile(without("Reattached", "TaskExited", "TaskEnded", "AgentExiting"))
    world.settle()
    world.agents[EVIL].close()
    world._pool._hosts[EVIL]._handle_link_loss(Cause(Code.HEARTBEAT_MISSING))
    run(world)
    lost = world.of(events.HostLost)[0]
    assert (lost.host, lost.cause.code) == (EVIL, Code.HOST_SILENT_TOO_LONG)


def test_a_link_that_is_lost_again_and_again_extends_nothing(hostile: Hostile) -> None:
    """The agent reattaches each time, and is asked for the end of its task each time."""
    world = hostile(without("TaskExited", "TaskEnded", "AgentExiting"))
    world.agents[EVIL].is_immortal = True
    host = world._pool._hosts[EVIL]
    on_reattached = host._on_reattached

    def lose_again(*arguments: Any) -> None:
        on_reattached(*arguments)
        lose()

    def lose() -> None:
        host._handle_link_loss(Cause(Code.SSH_NOT_ENDED))
        host.link.limit(1.0)  # the clock stands still until the next heartbeat

    host._on_reattached = lose_again  # type: ignore[method-assign, assignment]
    world.settle()
    lose()
    run(world)
    assert world.faults[EVIL].code is Code.STOP_NOT_EXECUTED


@pytest.mark.parametrize(
    ("rate", "earliest", "latest"),
    [(0, 120, 125), (1, 120, 125), (8 << 10, 235, 245), (20 << 10, 7200, 7201)],
)
def test_logs_extend_a_shutdown_in_proportion(
    monkeypatch: pytest.MonkeyPatch, rate: int, earliest: int, latest: int
) -> None:
    now = 1000
    monkeypatch.setattr("time.monotonic", lambda: float(now))
    times = OrderDeadlines(60.0)
    times.record_order(protocol.Shutdown())
    while times.pop_expired() is None:
        now += 1
        times.record_log(rate)
    assert earliest <= now - 1000 <= latest
