"""A job whose tasks do nothing, from its record to the verdict, with emulated hosts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.lifecycle import JobPhase
from distrun.spec.model import Timeouts
from distrun.verdict.model import Kind
from distrun.words.causes import cause_text
from distrun.words.events import event_text
from harness.hostile import EVIL, HEARTBEAT, Agent, World
from harness.values import not_none


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.settle()
    assert world.state.phase is JobPhase.RUNNING
    yield world
    world.close()


def wait(world: World, seconds: float) -> None:
    for _ in range(int(seconds / HEARTBEAT)):
        world.advance()


def found(world: World, kind: type[events.Event]) -> list[events.Event]:
    return [event for event in world.record if type(event) is kind]


def stop(world: World, grace: float | None = None) -> None:
    stop_job = protocol.StopJob(
        Cause(Code.STOPPED_BY_COMMAND, name="distrun kill"), signal.SIGTERM, grace, 137
    )
    world._supervisor._stops.receive(stop_job)


def test_it_is_said_once_until_output_ends_it(world: World) -> None:
    wait(world, 600.0)
    (event,) = found(world, events.TasksQuiet)
    assert isinstance(event, events.TasksQuiet)
    assert 120.0 <= event.at - event.since <= 180.0
    text = event_text(event) or ""
    assert "no task has printed, reported progress or used the processor" in text
    assert world.state.quiet == event
    assert world.state.outcome is None
    part = protocol.LogData("evaluator-0.log", 3, b"a line\n")
    world.agents[EVIL]._send(part, is_kept=False)
    wait(world, 60.0)
    assert len(found(world, events.TasksActive)) == 1
    assert world.state.quiet != event
    wait(world, 300.0)
    assert len(found(world, events.TasksQuiet)) == 2


def test_a_task_that_only_computes_ends_in_the_same_words(world: World) -> None:
    spins = world.good_tasks[0]
    for step in range(2, 40):
        report = protocol.Progress(world.evil_task, {"STEP": str(step)}, 0.0)
        world.agents[EVIL]._send(report, is_kept=False)
        world.advance()

    def measure(agent: Agent, _: protocol.MeasureCpu) -> list[protocol.CpuMeasured]:
        used = {task: world.now if task == spins else 1.0 for task in agent.running}
        return [protocol.CpuMeasured(used)]

    for agent in world.agents.values():
        agent._on_measure_cpu = partial(measure, agent)  # type: ignore[method-assign]
    wait(world, 300.0)
    (event,) = found(world, events.TasksQuiet)
    assert isinstance(event, events.TasksQuiet)
    assert event.busy == (spins,)
    assert event.usual >= HEARTBEAT
    said = (
        f"or reported progress, which came every {HEARTBEAT:.1f} s before; {spins} computes while"
    )
    assert said in (event_text(event) or "")
    stop(world, 10.0)
    world.settle()
    wait(world, 30.0)
    verdict = not_none(not_none(world.state.outcome).verdict)
    assert (verdict.kind, verdict.cause.code) == (Kind.STALLED, Code.TASKS_STOPPED)
    assert f"{spins} computed while the others waited" in cause_text(verdict.cause)


def test_its_stop_shows_where_the_tasks_were(world: World) -> None:
    wait(world, 300.0)
    orders: list[protocol.StopTask] = []
    for agent in world.agents.values():
        agent._on_stop_task = lambda order: orders.append(order) or []  # type: ignore[method-assign,func-returns-value]
    stop(world, 10.0)
    world.settle()
    assert {(each.signal, each.with_stacks) for each in orders} == {(signal.SIGTERM, True)}
    orders.clear()
    wait(world, 8.0)
    assert not orders
    wait(world, 3 * HEARTBEAT)
    assert {(each.signal, each.grace) for each in orders} == {(signal.SIGABRT, 1.0)}
    for agent in world.agents.values():
        agent.end_tasks(None, signal.SIGABRT)
    world.settle()
    wait(world, 30.0)
    outcome = world.state.outcome
    assert outcome is not None
    assert outcome.exit_code == 137
    assert outcome.verdict is not None
    assert outcome.verdict.kind is Kind.STALLED
    assert outcome.verdict.cause.code is Code.TASKS_QUIET
    assert outcome.verdict.cause.seconds >= 300.0 - 4 * HEARTBEAT
    assert {each.task for each in outcome.verdict.evidence} >= set(world.good_tasks)


@pytest.mark.parametrize(("seconds", "grace"), [(60.0, 10.0), (300.0, 0.0)])
def test_other_stops_are_as_ever(world: World, seconds: float, grace: float) -> None:
    """If the job did something just now, and without time for anything."""
    wait(world, seconds)
    stop(world, grace)
    world.settle()
    wait(world, 30.0)
    outcome = world.state.outcome
    assert outcome is not None
    timed_out = [each.timer.kind for each in world.record if isinstance(each, events.TimedOut)]
    assert events.TimerKind.ABORT not in timed_out
    assert (outcome.verdict is None) == (seconds < 100.0)


def test_with_timeouts_stall_that_decides(tmp_path: Path) -> None:
    world = World(tmp_path, timeouts=Timeouts(stall=1000.0))
    world.settle()
    wait(world, 600.0)
    assert not found(world, events.TasksQuiet)
    world.close()
