"""What is known of an attempt that runs: whether it is ready, how far it is, and what it uses."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from harness.hostile import GOOD, NOW, World
from harness.parts.agent import protocol
from harness.parts.job import events
from harness.parts.protocol import Progress
from harness.parts.spec import Ready, Timeouts
from harness.parts.supervisor import RunningTask, running_tasks
from harness.values import not_none

NAME = "worker:0"


def attempt(**plan: Any) -> tuple[RunningTask, mock.Mock]:
    """An attempt, and who is told what it does."""
    known = {"name": NAME, "port": 2222, "is_awaited": False, "ready": Ready.PORT, **plan}
    told = mock.Mock()
    task = RunningTask(SimpleNamespace(**known), mock.MagicMock(), mock.Mock(), told)  # type: ignore[arg-type]
    with mock.patch.object(running_tasks, "TailedLog") as tail:
        task.start(protocol.TaskStarted(NAME, 1, 5, 0.0))
    moves = mock.Mock(is_moving=True, epochs_done=None)
    told.prints = lambda **values: tail.call_args.args[3](values, moves)
    return task, told


@pytest.mark.parametrize(
    ("plan", "ports", "times"),
    [
        ({}, [[2222]], 0), ({"is_awaited": True}, [[80], [81, 8080]], 0),
        ({"is_awaited": True}, [[80, 2222], [2222]], 1),
        ({"is_awaited": True, "ready": Ready.OFF}, [[2222]], 0),
        ({"is_awaited": True, "ready": Ready.LINE, "ready_line": "x"}, [[2222]], 0),
    ],
)  # fmt: skip
def test_when_it_is_ready(plan: dict[str, Any], ports: list[list[int]], times: int) -> None:
    task, told = attempt(**plan)
    for each in ports:
        task.on_listening(each)
    task.end()
    task.on_listening([2222])
    assert told.on_ready.call_count == times


@pytest.mark.parametrize(
    ("values", "is_between"),
    [
        ({}, False), ({"STEP": "5"}, False), ({"STEP": "5", "STEPS": "9"}, False),
        ({"STEP": "9", "STEPS": "9"}, True), ({"SAVING": "1"}, True), ({"SAVING": "0"}, False),
    ],
)  # fmt: skip
def test_when_it_prints_nothing(values: dict[str, str], is_between: bool) -> None:
    task, _ = attempt()
    task.record(Progress(NAME, values, 1.0))
    assert task.is_between is is_between


def test_what_it_reports_replaces_what_it_prints() -> None:
    task, told = attempt()
    told.prints(STEP="3", LOSS="0.5")
    printed_at = not_none(task.latest).at
    assert task.step_at == printed_at
    told.prints(STEP="3", LOSS="0.4")
    assert task.step_at == printed_at, "it has taken no step"
    task.record(Progress(NAME, {"ACC": "0.9"}, 7.0))
    assert not_none(task.latest).values == {"STEP": "3", "LOSS": "0.4", "ACC": "0.9"}
    task.record(Progress(NAME, {"STEP": "4"}, 8.0))
    assert (not_none(task.latest).values, task.step_at) == ({"ACC": "0.9", "STEP": "4"}, 8.0)
    assert told.on_progress.call_count == 4
    assert mock.call(task, None, is_moving=False) in told.on_step.mock_calls, "its bar has ended"


def used(at: float, seconds: float | None, **progress: str) -> protocol.UsageSampled:
    nothing = (None, None, None, None, None, None, None, None)
    return protocol.UsageSampled(NAME, 1, at, seconds, *nothing, progress)


def test_a_sample_has_the_progress_of_its_time() -> None:
    """That of a log is known some time after it was printed."""
    task, told = attempt()
    with mock.patch("time.time", return_value=100.0):
        told.prints(STEP="3")
    assert task.sample(used(97.0, 1.0)).progress == {}
    assert task.sample(used(98.5, 1.0)).progress == {"STEP": 3.0}
    assert task.sample(used(97.0, 1.0, ACC="0.5")).progress == {"ACC": 0.5}


@pytest.mark.parametrize(
    ("loads", "since", "share"),
    [
        ([], 0, 0.0), ([(5, 3.0)], 0, 0.0), ([(0, 0.0), (10, 5.0)], 0, 0.5),
        ([(0, 0.0), (10, 10.0), (20, 10.0), (30, 11.0)], 10, 0.05),
        ([(0, 0.0), (10, None), (20, 20.0)], 0, 1.0), ([(0, 0.0), (10, 10.0)], 11, 0.0),
    ],
)  # fmt: skip
def test_load_since(loads: list[tuple[float, float | None]], since: float, share: float) -> None:
    task, _ = attempt()
    for at, seconds in loads:
        task.sample(used(at, seconds))
    assert task.load_since(since) == share


Start = Callable[..., World]


def test_the_last_progress_is_recorded_once(hostile: Start) -> None:
    world = hostile()
    world.settle()
    for step in ("7", "8"):
        world.receive(GOOD, Progress("worker:0", {"STEP": step}, NOW))
    world.run()
    reported = [each.values["STEP"] for each in world.of(events.TaskReported) if each.task == NAME]
    assert reported == ["8"]


def test_endless_saves_fill_no_record(hostile: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_tasks, "_MOST_SAVES", 2)
    world = hostile()
    world.settle()
    for is_saving in "1100110010":
        world.receive(GOOD, Progress(NAME, {"SAVING": is_saving}, NOW))
    assert len(world.of(events.SavingStarted)) == len(world.of(events.SavingEnded)) == 2
    world.run()


@pytest.mark.parametrize(
    ("shares", "busy"),
    [([0.9, 0.001], [0]), ([0.9, 0.9], []), ([0.001, 0.001], []), ([0.05, 0.001], [])],
)
def test_who_is_busy_at_a_stall(shares: list[float], busy: list[int], hostile: Start) -> None:
    world = hostile(timeouts=Timeouts(stall=30.0))
    world.settle()
    names = world.state.training
    for second in range(60):
        for name, share in zip(names, [*shares, *shares[1:] * 9], strict=False):
            sample = used(NOW + second, 1.5 + share * second)
            world.receive(GOOD, sample._replace(task=name, attempt=0))
        world.advance(1.0)
    (stall,) = world.of(events.TimedOut)
    assert stall.busy == tuple(names[each] for each in busy)
