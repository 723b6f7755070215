"""When TensorBoard's address is told, and what is said if it does not answer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.loops import SimulatedLoop
from harness.messages import port_of
from harness.parts.agent import protocol
from harness.parts.job import events
from harness.parts.spec import TensorBoardSpec
from harness.parts.supervisor import TensorBoard, tensorboard
from harness.plans import spec_of


def test_its_silence_is_told_once_and_it_may_answer_later() -> None:
    loop = SimulatedLoop()
    told: list[events.Event] = []
    orders: list[protocol.StartTask] = []
    spec = spec_of(strategy="default", tensorboard=TensorBoardSpec(logdir="logs"))
    hosts = SimpleNamespace(
        below_supervisor="localhost", order=lambda _, order: orders.append(order)
    )
    folder = SimpleNamespace(job_id="job-1", logs=Path("/logs"), shown=str)
    job: Any = SimpleNamespace(loop=loop, spec=spec, folder=folder, hosts=hosts, emit=told.append)
    board = TensorBoard(job)
    board.start()
    port = port_of(orders[0])

    board.receive(protocol.TaskListening(tensorboard.NAME, 0, [1]))
    assert not told, "a port that is not its own says nothing"
    assert loop.call_next()
    (silent,) = told
    assert isinstance(silent, events.TensorBoardSilent)
    assert (silent.cause.seconds, silent.cause.path) == (60.0, "/logs/tensorboard.log")
    assert loop.next_call is None
    board.receive(protocol.TaskListening(tensorboard.NAME, 0, [1, port]))
    started = told[-1]
    assert isinstance(started, events.TensorBoardStarted)
    assert started.address == f"http://127.0.0.1:{port}/"
    board.start()
    board.receive(protocol.TaskListening(tensorboard.NAME, 0, [port_of(orders[1])]))
    assert loop.next_call is None, "it has answered in time"
