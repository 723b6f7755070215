"""What the agent reports of the ports that tasks listen on, and of their processor time."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable

import pytest

from distrun.agent import protocol
from harness.agents import Host
from harness.strangers import Stranger
from harness.waiting import wait_until

LISTENS = """
import os, socket, sys, time

def listen(port):
    server = socket.socket(socket.AF_INET6 if port % 2 else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("", port))
    server.listen()
    print("listening", flush=True)
    return server

held = [listen(int(each)) for each in sys.argv[2:]]
if sys.argv[1] == "child" and os.fork():
    held.clear()
while True:
    time.sleep(0.05)
"""


def hold(host: Host, count: int) -> list[int]:
    host.send(protocol.HoldPorts(count, []))
    return host.expect(protocol.PortsHeld).chosen


def run(host: Host, task: str, port: int, how: str, *ports: int) -> None:
    host.run(task, sys.executable, "-c", LISTENS, how, *map(str, ports), port=port)


def test_it_reports_where_a_task_listens(any_host: Host) -> None:
    own, other = hold(any_host, 2)
    any_host.run("worker:2", "sh", "-c", "exec sleep 600", port=own)  # which does not listen there
    run(any_host, "worker:0", own, "itself", own)
    assert any_host.expect(protocol.TaskListening, "worker:0").ports == [own]
    run(any_host, "worker:1", other, "child", own, other)  # a process that it has started counts
    assert any_host.expect(protocol.TaskListening, "worker:1").ports == sorted([own, other])
    told = {each.task for each in any_host.all(protocol.TaskListening)}
    assert told == {"worker:0", "worker:1"}


def test_it_reports_the_processor_time_of_each_task(host: Host) -> None:
    host.run("worker:0", "sh", "-c", "while :; do :; done")
    host.run("worker:1", "sleep", "600")

    def used() -> dict[str, float]:
        host.send(protocol.MeasureCpu())
        return host.expect(protocol.CpuMeasured).seconds

    first = used()
    assert first.keys() == {"worker:0", "worker:1"}
    wait_until(lambda: used()["worker:0"] > first["worker:0"] + 0.1)
    assert used()["worker:1"] == first["worker:1"]


@pytest.mark.parametrize(("address", "is_awaited"), [("127.0.0.1", True), ("::1", False)])
def test_a_stranger_who_listens_on_the_port_of_a_task_is_a_fault(
    host: Host, address: str, is_awaited: bool
) -> None:
    (port,) = hold(host, 1)

    def listen(report: Callable[[str], None]) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as server:
            wait_until(lambda: _is_bound(server, address, port))
            server.listen()
            report("listening")
            signal.pause()

    with Stranger(listen) as stranger:
        program = ["sh", "-c", "while :; do echo importing; sleep 0.1; done"]
        host.run("store:0", *program, port=port, binds_port=True, is_awaited=is_awaited)
        assert stranger.report() == "listening"
        cause = host.expect(protocol.Fault).cause
        found = (cause.code, cause.port, cause.task)
        assert found == (protocol.Code.PORT_OF_STRANGER, port, "store:0")
    assert host.all(protocol.TaskListening) == []


def _is_bound(server: socket.socket, address: str, port: int) -> bool:
    try:
        server.bind((address, port))
    except OSError:
        return False
    return True


def test_no_stranger_can_listen_beside_a_task(host: Host) -> None:
    """Clients of `localhost` may try IPv6 first, and the task listens on IPv4."""
    (port,) = hold(host, 1)
    program = LISTENS.replace('("", port)', '("127.0.0.1", port)')
    program = program.replace("socket.AF_INET6 if port % 2 else ", "")

    def try_to_bind(report: Callable[[str], None]) -> None:
        def is_refused() -> bool:
            with socket.socket(socket.AF_INET6) as server:
                return not _is_bound(server, "::1", port)

        wait_until(is_refused)
        report("refused")
        signal.pause()

    argv = [sys.executable, "-c", program, "itself", str(port)]
    host.run("store:0", *argv, port=port, binds_port=True)
    assert host.expect(protocol.TaskListening, "store:0").ports == [port]
    with Stranger(try_to_bind) as stranger:
        assert stranger.report() == "refused"
    assert host.all(protocol.Fault) == []
