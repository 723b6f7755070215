"""Jobs whose tasks do nothing, or are slow: what is said unasked, with emulated hosts."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.hostile import EVIL, GOOD, HEARTBEAT, NOW, Agent, World
from harness.parts.advice import Symptom
from harness.parts.agent import protocol
from harness.parts.job import events
from harness.parts.lifecycle import JobPhase
from harness.parts.protocol import Code, stack_messages
from harness.parts.settings import HostSpec
from harness.parts.spec import RoleSpec, Timeouts
from harness.parts.top import Role
from harness.parts.verdict import Kind
from harness.parts.words import event_text
from harness.values import not_none

from .test_profile import RECORDING


@pytest.fixture
def world(hostile: Callable[..., World]) -> World:
    world = hostile()
    world.settle()
    assert world.state.phase is JobPhase.RUNNING
    return world


def test_it_is_said_once_until_output_ends_it(world: World) -> None:
    world.wait(600.0)
    (event,) = world.of(events.TasksQuiet)
    assert 120.0 <= event.at - event.since <= 180.0
    assert (event.usual, event.busy) == (0.0, ())
    assert world.state.quiet == event
    assert world.state.outcome is None
    part = protocol.LogData("evaluator-0.log", 3, b"a line\n")
    world.agents[EVIL]._send(part, is_kept=False)
    world.wait(60.0)
    assert len(world.of(events.TasksActive)) == 1
    assert world.state.quiet != event
    world.wait(1000.0)  # less than twice the silence that ended by itself
    assert len(world.of(events.TasksQuiet)) == 1
    world.wait(400.0)
    assert len(world.of(events.TasksQuiet)) == 2


@pytest.mark.parametrize("step", range(1, 5))
def test_it_is_said_soon_whenever_the_last_sign_was(world: World, step: int) -> None:
    world.wait(4.0 * step)  # at another time between two checks
    report = protocol.Progress(world.evil_task, {"STEP": str(step)}, 0.0)
    world.agents[EVIL]._send(report, is_kept=False)
    world.wait(300.0)
    (last,) = world.of(events.TasksQuiet)
    assert 120.0 <= last.at - last.since <= 136.0


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
    world.wait(300.0)
    (event,) = world.of(events.TasksQuiet)
    assert event.busy == (spins,)
    assert event.usual >= HEARTBEAT
    said = f"or reported progress, which came every {HEARTBEAT:.1f} s before; {spins} is busy "
    assert said in (event_text(event) or "")
    world.stop(10.0)
    world.wait(30.0)
    verdict = not_none(not_none(world.state.outcome).verdict)
    assert (verdict.kind, verdict.cause.code) == (Kind.STALLED, Code.TASKS_STOPPED)
    assert verdict.cause.tasks == (spins,)


@pytest.mark.parametrize(("seconds", "raised"), [(60.0, ""), (300.0, ""), (300.0, "KeyError: 'a'")])
def test_its_stop_shows_where_the_tasks_were(world: World, seconds: float, raised: str) -> None:
    text = f'Process P:\nTraceback (most recent call last):\n  File "a", line 2, in f\n{raised}\n'
    log = f"{world.good_tasks[0].replace(':', '-')}.log"
    part = protocol.LogData(log, 3, text.encode() if raised else b"")
    world.agents[GOOD]._send(part, is_kept=False)
    world.wait(seconds)
    orders: list[protocol.StopTask] = []
    for agent in world.agents.values():
        agent._on_stop_task = lambda order: orders.append(order) or []  # type: ignore[method-assign,func-returns-value]
    world.stop(10.0)
    assert {(each.signal, each.with_stacks) for each in orders} == {(signal.SIGTERM, True)}
    orders.clear()
    world.wait(8.0)
    assert not orders
    world.wait(3 * HEARTBEAT)
    assert {(each.signal, each.grace) for each in orders} == {(signal.SIGABRT, 1.0)}
    for agent in world.agents.values():
        agent.end_tasks(None, signal.SIGABRT)
    world.settle()
    world.wait(30.0)
    outcome = not_none(world.state.outcome)
    verdict = not_none(outcome.verdict)
    assert outcome.exit_code == 137
    if raised:
        assert (verdict.kind, verdict.cause.text) == (Kind.EXCEPTION, raised)
        return
    assert (verdict.kind, verdict.cause.code) == (Kind.STALLED, Code.TASKS_QUIET)
    assert verdict.cause.seconds >= seconds - 4 * HEARTBEAT
    assert {each.task for each in verdict.evidence} >= set(world.good_tasks)


@pytest.mark.parametrize(("seconds", "grace"), [(16.0, 10.0), (300.0, 0.0)])
def test_other_stops_are_as_ever(world: World, seconds: float, grace: float) -> None:
    """If the job did something just now, and without time for anything."""
    world.wait(seconds)
    world.stop(grace)
    world.wait(30.0)
    outcome = not_none(world.state.outcome)
    assert events.TimerKind.ABORT not in [each.timer.kind for each in world.of(events.TimedOut)]
    assert (outcome.verdict is None) == (seconds < 100.0)


def test_with_timeouts_stall_that_decides(hostile: Callable[..., World]) -> None:
    world = hostile(timeouts=Timeouts(stall=1000.0))
    world.settle()
    world.wait(600.0)
    assert not world.of(events.TasksQuiet)
    works, now = world.good_tasks[0], time.time()
    for number in range(20):
        used = (7.0 * number, 1, 1, 1, 1, 1, None, None, None)
        sample = protocol.UsageSampled(works, 0, now + 10 * number, *used, {})
        world._supervisor._running.receive(GOOD, sample)
    world.wait(900.0)
    (stalled,) = (each for each in world.of(events.TimedOut) if "stall" in str(each))
    assert stalled.busy == (works,)


# Slow jobs ----------------------------------------------------------------------------------------


class Watched(World):
    """Three workers on two hosts, the last one on `evil`. Hosts answer with what `cores` says."""

    def __init__(self, folder: Path, strategy: str) -> None:
        roles = [RoleSpec(role=Role.WORKER, count=3)]
        if strategy == "parameter_server":
            roles += [RoleSpec(role=each, count=1) for each in (Role.CHIEF, Role.PS)]
        hosts = HostSpec(name=GOOD, slots=len(roles) + 1), HostSpec(name=EVIL, slots=1)
        changes = {"strategy": strategy, "roles": tuple(roles), "hosts": hosts}
        super().__init__(folder, changes=changes)
        self.cores: dict[str, float] = {}
        """In use by each task; 1 for those that are not named."""
        self.rates: dict[str, float] = {}
        """Steps a second, since `began`. Until then, and of those that are not named: 2."""
        self.began = 1000.0
        self.silent: set[str] = set()
        """Those that report none."""
        self.looks = 0
        self.seen: dict[str, Any] = {}
        """Of their stacks."""
        for agent in self.agents.values():
            agent.gpus = []
            agent._on_dump_stacks = self._answer  # type: ignore[method-assign]
        self.settle()
        assert self.state.phase is JobPhase.RUNNING

    def _answer(self, order: stack_messages.DumpStacks) -> list[protocol.Report]:
        self.looks += 1
        assert not order.digest, "py-spy is sent nowhere unasked"
        found = [{"task": n, "pid": 7, "recording": self._recording(n)} for n in order.tasks]
        return [stack_messages.StacksDumped(order.number, json.dumps(found))]

    def _recording(self, task: str) -> dict[str, Any]:
        cores = self.cores.get(task, 1.0)
        readings = [(20 * n, 20 * n * cores, 0) for n in range(100)]
        return {**RECORDING, "readings": readings, **self.seen}

    def wait(self, seconds: float) -> None:
        began = self.now
        while self.now < began + seconds:
            for task, host in [(each.name, each.host) for each in self.state.tasks.values()]:
                if task in self.silent:
                    continue
                before, since = self.began - 1000.0, self.now - self.began
                step = str(int(10 + 2.0 * before + self.rates.get(task, 2.0) * since))
                report = protocol.Progress(
                    task, {"STEP": step, "STEPS": "100010"}, self.now + NOW - 1000.0
                )
                self.agents[host]._send(report, is_kept=False)
            self.advance()


Watch = Callable[[str], Watched]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with contextlib.ExitStack() as stack:
        yield lambda strategy: stack.enter_context(contextlib.closing(Watched(tmp_path, strategy)))


LITTLE, ONE = {"worker:0": 0.9, "worker:1": 0.85}, {"worker:0": 0.4}
SLOW = {"worker:0": 0.4, "worker:1": 0.5}


@pytest.mark.parametrize("printed", [{"EPOCH": "3"}, {}])
def test_the_task_that_the_others_wait_for_is_told_once(
    watch: Watch, printed: dict[str, str]
) -> None:
    world = watch("multi_worker_mirrored")
    world.cores, world.silent = SLOW, {"worker:0", "worker:1", "worker:2"}
    for each in world._supervisor._running._tasks.values():  # Keras may print only epochs
        each.latest = each.latest and each.latest._replace(values=printed) if printed else None
    world.wait(80.0)
    (event,) = world.of(events.JobAdvised)
    finding = not_none(event.finding)
    assert (finding.symptom, finding.task) == (Symptom.WAITED_FOR, "worker:2")
    assert finding.amount == pytest.approx(0.5, abs=0.02)
    looks = world.looks
    world.wait(200.0)
    assert world.looks == looks, "it looks seldom"
    world.wait(400.0)
    assert world.looks > looks
    assert world.of(events.JobAdvised) == [event]
    assert world.state.outcome is None
    begins = events.FirstStep(at=world.now, task="worker:0", attempt=1)
    world._supervisor._advisor.on_event(world.state, begins, world.state)
    world.wait(150.0)
    world.cores = {}
    world.wait(600.0)
    told = [each.finding and each.finding.task for each in world.of(events.JobAdvised)]
    assert told == ["worker:2", "worker:2", None], "again where the tasks have begun again"


def test_where_all_wait_for_input_it_is_told_though_only_epochs_are_printed(watch: Watch) -> None:
    world = watch("multi_worker_mirrored")
    world.silent = {*world.state.tasks}
    for each in world._supervisor._running._tasks.values():
        each.latest = not_none(each.latest)._replace(values={"EPOCH": "3"})
    stacks = {"frames": [("next_batch", "/u/a.py", 3, "")], "stacks": [[0]]}
    world.seen = {**stacks, "threads": [[(0, 0), (2000, 0)]]}
    world.wait(80.0)
    (event,) = world.of(events.JobAdvised)
    assert not_none(event.finding).symptom is Symptom.INPUT


@pytest.mark.parametrize(("first", "later"), [(LITTLE, LITTLE), (ONE, ONE), (SLOW, {})])
def test_healthy_is_silent(watch: Watch, first: dict[str, float], later: dict[str, float]) -> None:
    world = watch("multi_worker_mirrored")
    world.cores = first
    while world.looks < 3:  # an answer of each host is a look
        world.wait(HEARTBEAT)
    world.cores = later
    world.wait(200.0)
    assert world.looks >= 6
    assert not world.of(events.JobAdvised)


def test_a_task_that_becomes_slow_is_told_soon(watch: Watch) -> None:
    world = watch("multi_worker_mirrored")
    world.wait(300.0)
    looks = world.looks
    world.wait(400.0)
    assert world.looks == looks, "as long as all take as many steps as before"
    world.cores, world.began, world.rates = SLOW, world.now, dict.fromkeys(world.state.tasks, 1.0)
    world.wait(240.0)
    (event,) = world.of(events.JobAdvised)
    assert not_none(event.finding).task == "worker:2"


def test_a_worker_that_takes_fewer_steps_is_told(watch: Watch) -> None:
    world = watch("parameter_server")
    world.rates = {"worker:1": 1.0}
    world.wait(300.0)
    (event,) = world.of(events.JobAdvised)
    finding = not_none(event.finding)
    assert (finding.symptom, finding.task) == (Symptom.BEHIND, "worker:1")
    assert (finding.amount, finding.usual) == pytest.approx((1.0, 2.0), abs=0.1)
    tasks = [world._supervisor._running._tasks[name] for name in ("worker:0", "worker:1")]
    ends = [not_none(task.latest).ends_at for task in tasks]
    assert ends == pytest.approx([NOW + 50_000, NOW + 100_000], abs=2000.0)
    used = (7.0, 1, 1, 1, 1, 1, None, None, None)
    report = protocol.UsageSampled("worker:0", 0, NOW, *used, {})
    assert tasks[0].sample(report).ends_at == ends[0]
    world.silent = {"worker:0"}
    world.wait(300.0)
    world._supervisor._running.receive(world.state.tasks["worker:0"].host, report)
    assert not_none(tasks[0].latest).ends_at is None, "it does not move any more"
