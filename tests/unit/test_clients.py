"""A supervisor without free descriptors waits with new commands; it does not spin."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from distrun.supervisor.clients import Clients
from harness.loops import SimulatedLoop
from harness.values import not_none


def test_a_connection_waits_while_too_many_files_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.setblocking(False)
    monkeypatch.chdir(tmp_path)  # a short path
    server.bind("s")
    server.listen()
    loop = SimulatedLoop()
    clients = Clients(loop, server, lambda *_: None, lambda *_: None)
    command = socket.socket(socket.AF_UNIX)
    command.connect("s")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert loop.turn(0.0)
        # Otherwise the supervisor would be woken again at once, without end.
        assert not loop.turn(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not_none(loop.next_call) <= 1.0
    loop.call_next()
    loop.turn(0.0)
    assert len(clients._clients) == 1
    clients._clients[0].close()
    loop.close()
    command.close()
    server.close()
