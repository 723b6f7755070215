"""Another user of the host attacks distrun's sockets."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrun.agent.reattach import ReattachListener
from distrun.job import folder as job_folder
from distrun.job.folder import JobFolder, JobStore
from distrun.supervisor.clients import Clients
from distrun.supervisor.hosts import bootstrap
from harness.loops import SimulatedLoop
from harness.strangers import Stranger, need_stranger
from harness.waiting import wait_until

MARK = b"the link begins here"
Report = Callable[[str], None]


def test_a_dead_agents_name_does_not_give_a_stranger_the_link() -> None:
    token = os.urandom(12).hex()

    def take_the_name(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(f"\0distrun-agent-{token}")
            server.listen()
            report("listening")
            client, _ = server.accept()
            _, ancillary, _, _ = client.recvmsg(1, socket.CMSG_SPACE(8))
            report(f"{len(ancillary)} messages with descriptors")

    with Stranger(take_the_name) as stranger:
        assert stranger.report() == "listening"
        reattaching = subprocess.run(
            [sys.executable, "-I", "-S", "-c", bootstrap.COMMAND.split(' -c "')[1].rstrip('"')],
            input=bootstrap.reattach(MARK, token, "a-1", {"worker:0": 0}),
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert stranger.report() == "0 messages with descriptors"
    assert reattaching.returncode == bootstrap.EXIT_NO_AGENT
    assert bootstrap.NO_AGENT.encode() in reattaching.stderr
    assert MARK not in reattaching.stdout


def test_a_living_agent_takes_no_link_from_a_stranger() -> None:
    need_stranger()
    listener = ReattachListener(os.urandom(12).hex(), lambda *_: None)

    def pass_a_link(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(f"\0distrun-agent-{listener.token}")
            link = array.array("i", [0, 1])
            client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, link)])
            report("sent")
            client.recv(1)

    with Stranger(pass_a_link) as stranger:
        assert stranger.report() == "sent"
        assert listener.accept() is None
    listener._socket.close()


@pytest.fixture
def open_folder(public_folder: Path) -> JobFolder:
    """A job's folder whose permissions somebody has opened to everybody."""
    store = JobStore(public_folder / "home")
    folder = job_folder.create(store.new_folder("job"), b"x")
    for each in (store.jobs.parent, store.jobs, folder.path):
        each.chmod(0o777)
    return JobFolder(folder.path)


def test_a_supervisor_executes_no_request_of_a_stranger(open_folder: JobFolder) -> None:
    requests: list[Any] = []
    path = str(open_folder.path / "control.sock")

    def ask(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(path)
            report("connected")
            report(f"answered {client.recv(100)!r}")

    with open_folder.listen() as server, contextlib.closing(SimulatedLoop()) as loop:
        os.chmod(path, 0o777)
        clients = Clients(loop, server, lambda *given: requests.append(given), lambda _: None)
        with Stranger(ask) as stranger:
            assert stranger.report() == "connected"
            wait_until(lambda: loop.turn(0.0))
            assert stranger.report() == "answered b''"
        assert not clients._clients
    assert requests == []


def test_a_command_talks_to_no_supervisor_of_a_stranger(open_folder: JobFolder) -> None:
    path = open_folder.path / "control.sock"

    def listen(report: Report) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(path))
            os.chmod(path, 0o777)
            server.listen()
            report("listening")
            client, _ = server.accept()
            report(f"received {client.recv(100)!r}")

    with Stranger(listen) as stranger:
        assert stranger.report() == "listening"
        wait_until(path.is_socket)
        assert open_folder.connect() is None
        assert stranger.report() == "received b''"
