"""When TensorBoard's address is told, and what is said if it does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distrun.agent import protocol
from distrun.job import events
from distrun.spec.model import ProgramKind, ProgramSpec, Spec, TensorBoardSpec
from distrun.strategies import STRATEGIES
from distrun.supervisor import tensorboard
from distrun.supervisor.tensorboard import TensorBoard
from distrun.words.events import event_text
from harness.loops import SimulatedLoop


class Started:
    """A TensorBoard at a time of its own, and what is told of it."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.events: list[events.Event] = []
        self.orders: list[protocol.StartTask] = []
        spec = Spec(
            name="job",
            strategy="default",
            roles=(),
            program=ProgramSpec(kind=ProgramKind.COMMAND, target="", workdir="/"),
            success=STRATEGIES["default"].success,
            tensorboard=TensorBoardSpec(logdir="logs"),
        )
        hosts = SimpleNamespace(
            below_supervisor="localhost", order=lambda _, order: self.orders.append(order)
        )
        folder = SimpleNamespace(job_id="job-1")
        job: Any = SimpleNamespace(
            loop=self.loop, spec=spec, folder=folder, hosts=hosts, emit=self.events.append
        )
        self.board = TensorBoard(job, self.loop.now)
        self.board.start()

    @property
    def port(self) -> int:
        return self.orders[0].port

    def listen(self, *ports: int) -> None:
        self.board.receive(protocol.TaskListening(tensorboard.NAME, 0, list(ports)))

    def wait(self) -> None:
        assert self.loop.call_next()

    @property
    def texts(self) -> list[str | None]:
        return [event_text(each) for each in self.events]


@pytest.fixture
def started() -> Started:
    return Started()


def test_its_address_is_told_when_it_listens_there(started: Started) -> None:
    started.listen(1)
    assert not started.events
    started.listen(1, started.port)
    assert started.texts == [f"TensorBoard is at http://127.0.0.1:{started.port}/"]
    assert started.loop.next_call is None


def test_its_silence_is_told_once_and_it_may_answer_later(started: Started) -> None:
    started.wait()
    assert started.texts == ["TensorBoard has not answered for 60 s; see tensorboard.log"]
    assert started.loop.next_call is None
    started.listen(started.port)
    assert started.texts[1:] == [f"TensorBoard is at http://127.0.0.1:{started.port}/"]


def test_its_end_is_told_in_place_of_its_silence(started: Started) -> None:
    started.board.receive(protocol.TaskExited(tensorboard.NAME, 0, 0.0, 1))
    assert started.texts == ["TensorBoard ended by itself (1); see tensorboard.log"]
    assert started.loop.next_call is None
