"""What is said unasked of a running job, with emulated hosts and a simulated clock."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrun.advice.model import Symptom
from distrun.agent import protocol
from distrun.agent.protocol import stack_messages
from distrun.job import events
from distrun.lifecycle import JobPhase
from distrun.spec.model import HostSpec, RoleSpec
from distrun.strategies import Role
from distrun.words.events import event_text
from harness.hostile import EVIL, GOOD, HEARTBEAT, NOW, World

from .test_profile import RECORDING

WORKERS = 3


class Watched(World):
    """Three workers on two hosts, the last one on `evil`. Hosts answer with what `cores` says."""

    def __init__(self, folder: Path, strategy: str) -> None:
        roles = [RoleSpec(role=Role.WORKER, count=WORKERS)]
        if strategy == "parameter_server":
            roles += [RoleSpec(role=each, count=1) for each in (Role.CHIEF, Role.PS)]
        hosts = HostSpec(name=GOOD, slots=len(roles) + 1), HostSpec(name=EVIL, slots=1)
        changes = {"strategy": strategy, "roles": tuple(roles), "hosts": hosts}
        super().__init__(folder, changes=changes)
        self.cores: dict[str, float] = {}
        """In use by each task; 1 for those that are not named."""
        self.rates: dict[str, float] = {}
        """Steps a second."""
        self.looks = 0
        for agent in self.agents.values():
            agent._on_dump_stacks = self._answer  # type: ignore[method-assign]
        self.settle()
        assert self.state.phase is JobPhase.RUNNING

    def _answer(self, order: stack_messages.DumpStacks) -> list[protocol.Report]:
        self.looks += 1
        assert not order.digest, "py-spy is sent nowhere unasked"
        found = [
            {"task": task, "pid": 7, "recording": self._recording(task)} for task in order.tasks
        ]
        return [stack_messages.StacksDumped(order.number, json.dumps(found))]

    def _recording(self, task: str) -> dict[str, Any]:
        cores = self.cores.get(task, 1.0)
        return {**RECORDING, "readings": [(20 * n, 20 * n * cores, 0) for n in range(100)]}

    def wait(self, seconds: float) -> None:
        began = self.now
        while self.now < began + seconds:
            for task, host in [(each.name, each.host) for each in self.state.tasks.values()]:
                step = str(int(10 + self.rates.get(task, 2.0) * (self.now - 1000.0)))
                report = protocol.Progress(task, {"STEP": step}, self.now + NOW - 1000.0)
                self.agents[host]._send(report, is_kept=False)
            self.advance()

    @property
    def told(self) -> list[events.JobAdvised]:
        return [event for event in self.record if isinstance(event, events.JobAdvised)]


Watch = Callable[[str], Watched]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with contextlib.ExitStack() as stack:
        yield lambda strategy: stack.enter_context(contextlib.closing(Watched(tmp_path, strategy)))


def test_the_task_that_the_others_wait_for_is_told_once(watch: Watch) -> None:
    world = watch("multi_worker_mirrored")
    world.cores = {"worker:0": 0.4, "worker:1": 0.5}
    world.wait(150.0)
    (event,) = world.told
    assert (event.finding.symptom, event.finding.task) == (Symptom.WAITED_FOR, "worker:2")
    assert event.finding.amount == pytest.approx(0.5, abs=0.02)
    assert "the others wait for worker:2" in (event_text(event) or "")
    looks = world.looks
    world.wait(600.0)
    assert world.looks == looks, "it looks seldom"
    world.wait(1200.0)
    assert world.looks > looks
    assert world.told == [event]
    assert world.state.outcome is None


@pytest.mark.parametrize(
    "cores", [{"worker:0": 0.9, "worker:1": 0.85}, {"worker:0": 0.4}], ids=["a little", "only one"]
)
def test_nothing_is_said_of_a_healthy_job(watch: Watch, cores: dict[str, float]) -> None:
    world = watch("multi_worker_mirrored")
    world.cores = cores
    world.wait(300.0)
    assert world.looks
    assert not world.told


def test_a_task_that_is_slow_only_for_a_moment_is_not_told(watch: Watch) -> None:
    world = watch("multi_worker_mirrored")
    world.cores = {"worker:0": 0.4, "worker:1": 0.5}
    while world.looks < 3:  # an answer of each host is a look
        world.wait(HEARTBEAT)
    world.cores = {}
    world.wait(200.0)
    assert not world.told


def test_a_look_during_which_a_task_ends_is_no_look(watch: Watch) -> None:
    world = watch("parameter_server")
    advisor = world._supervisor._advisor
    while not world.looks:
        world.wait(HEARTBEAT)
    world.wait(HEARTBEAT)
    assert len(advisor._looks) == 1
    answer = world.agents[GOOD]._on_dump_stacks

    def late(order: stack_messages.DumpStacks) -> Any:
        first_step = events.FirstStep(at=world.now, task="worker:1", attempt=2, values={})
        advisor.on_event(world.state, first_step, world.state)
        return answer(order)

    world.agents[GOOD]._on_dump_stacks = late  # type: ignore[method-assign]
    world.wait(35.0)
    assert advisor._looks == []


def test_a_worker_that_takes_fewer_steps_is_told(watch: Watch) -> None:
    world = watch("parameter_server")
    world.rates = {"worker:1": 1.0}
    world.wait(300.0)
    (event,) = world.told
    assert (event.finding.symptom, event.finding.task) == (Symptom.BEHIND, "worker:1")
    assert (event.finding.amount, event.finding.usual) == pytest.approx((1.0, 2.0), abs=0.1)
