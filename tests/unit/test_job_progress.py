"""Progress datagrams on a real socket."""

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnist_job.progress import INTERVAL, Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


Receiver = tuple[socket.socket, dict[str, str]]


@pytest.fixture(params=["path", "abstract"])
def receiver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Receiver]:
    if request.param == "abstract":
        name = f"@distrun-test-{uuid.uuid4().hex}"
        bound = "\0" + name[1:]
    else:
        monkeypatch.chdir(tmp_path)  # a short path: the whole one may be over 108 bytes
        name = bound = "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(bound)
        sock.setblocking(False)
        yield sock, {"DISTRUN_NOTIFY": name}


def test_one_datagram(receiver: Receiver) -> None:
    sock, environ = receiver
    progress = Progress(environ)
    progress.send(step=120, epoch=1, loss=0.12, speed=1800.4)
    assert sock.recv(4096) == b"STEP=120 EPOCH=1 LOSS=0.12 EXAMPLES_PER_SEC=1800.4"


def test_totals_and_metrics(receiver: Receiver) -> None:
    sock, environ = receiver
    progress = Progress(environ, EPOCHS=3, STEPS=2_000_000)
    progress.send(step=1_999_999, epoch=3, loss=0.16, speed=1800.0, ACCURACY=0.951)
    text = b"STEP=1999999 EPOCH=3 EPOCHS=3 STEPS=2000000 LOSS=0.16 ACCURACY=0.951 "
    assert sock.recv(4096) == text + b"EXAMPLES_PER_SEC=1800"


def test_due_twice_a_second(receiver: Receiver) -> None:
    _, environ = receiver
    clock = Clock()
    progress = Progress(environ, clock)
    due = [progress.due]
    progress.send(step=1, epoch=1, loss=1.0, speed=1.0)
    clock.now += INTERVAL * 0.99
    due.append(progress.due)
    clock.now += INTERVAL * 0.02
    due.append(progress.due)
    assert due == [True, False, True]


def test_what_is_no_number_is_left_out(receiver: Receiver) -> None:
    sock, environ = receiver
    progress = Progress(environ)
    progress.send(step=1, epoch=1, loss=float("nan"), speed=float("inf"))
    assert sock.recv(4096) == b"STEP=1 EPOCH=1"


def test_a_full_socket_neither_blocks_nor_fails(receiver: Receiver) -> None:
    _, environ = receiver
    progress = Progress(environ)
    for step in range(5000):  # far more than a socket queues; blocking would run into the timeout
        progress.send(step=step, epoch=1, loss=1.0, speed=1.0)


@pytest.mark.parametrize("name", ["", "/nowhere/at/all", "@nobody-{}", "x" * 300])
def test_without_a_receiver(name: str) -> None:
    name = name.format(uuid.uuid4().hex)
    progress = Progress({"DISTRUN_NOTIFY": name} if name else {})
    progress.send(step=1, epoch=1, loss=1.0, speed=1.0)
    assert not progress.due
