"""Progress datagrams on a real socket."""

import math
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnist_job.progress import report


@pytest.fixture(params=["path", "abstract"])
def receiver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    if request.param == "abstract":
        name = f"@distrun-test-{uuid.uuid4().hex}"
        bound = "\0" + name[1:]
    else:
        monkeypatch.chdir(tmp_path)  # a short path: the whole one may be over 108 bytes
        name = bound = "notify"
    monkeypatch.setenv("DISTRUN_NOTIFY", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(bound)
        sock.setblocking(False)
        yield sock


def test_one_datagram_with_what_is_a_number(receiver: socket.socket) -> None:
    report(STEP=1_999_999, LOSS=math.nan, ACCURACY=0.951, EXAMPLES_PER_SEC=math.inf)
    assert receiver.recv(4096) == b"STEP=1999999 ACCURACY=0.951"


@pytest.mark.parametrize("name", ["", "/nowhere/at/all", "@nobody-{}", "x" * 300])
def test_without_a_receiver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRUN_NOTIFY", name.format(uuid.uuid4().hex))
    report(STEP=1)
