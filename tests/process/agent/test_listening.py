"""Ports of tasks: which the agent holds, where they listen; and their processor time."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import strangers
from harness.agents import TIMEOUT, Host, MakeHost
from harness.parts.agent import protocol
from harness.parts.protocol import Cause, Code, probe_messages
from harness.parts.words import cause_text
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
def test_a_stranger_on_a_tasks_port_is_a_fault(host: Host, address: str, is_awaited: bool) -> None:
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
        assert found == (Code.PORT_OF_STRANGER, port, "store:0")
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


def bind(port: int, family: int, *options: int, v6only: int = 0) -> socket.socket:
    taker = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            taker.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            taker.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        taker.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
        taker.listen()
    except OSError:
        taker.close()
        raise
    return taker


def test_a_held_port_cannot_be_taken(any_host: Host) -> None:
    ports = hold(any_host, 2)
    assert len(set(ports)) == 2
    for port in ports:
        for family, v6only in ((socket.AF_INET, 0), (socket.AF_INET6, 0), (socket.AF_INET6, 1)):
            for options in ((), (socket.SO_REUSEADDR,)):
                with pytest.raises(OSError, match="in use"):
                    bind(port, family, *options, v6only=v6only).close()
    # A task that shares it is reached on it.
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with bind(ports[0], family, socket.SO_REUSEPORT) as server:
            for _ in range(20):
                socket.create_connection((address, ports[0]), timeout=TIMEOUT).close()
                server.accept()[0].close()


def test_a_wanted_port_with_a_stale_server_is_refused_and_named(host: Host) -> None:
    with bind(0, socket.AF_INET6, socket.SO_REUSEPORT) as stale:
        with bind(0, socket.AF_INET6, socket.SO_REUSEPORT) as gone:
            ports = [each.getsockname()[1] for each in (gone, stale)]
        host.send(protocol.HoldPorts(0, ports))
        refused = host.expect(protocol.PortsRefused)
    (cause,) = refused.causes
    assert (cause.port, cause.pid) == (ports[1], os.getpid())
    host.send(protocol.HoldPorts(0, ports))
    assert host.expect(protocol.PortsHeld).wanted == ports, "both can be had with the server gone"


def test_a_port_is_held_by_one_agent_only_and_free_after_it(make_host: MakeHost) -> None:
    first, second = make_host(), make_host()
    ports = hold(first, 1)
    second.send(protocol.HoldPorts(1, ports))  # all or none
    (cause,) = second.expect(protocol.PortsRefused).causes
    assert cause == Cause(Code.PORT_HELD_BY_JOB, port=ports[0])
    first.send(protocol.Shutdown())
    first.expect_end()
    second.send(protocol.HoldPorts(0, ports))
    assert second.expect(protocol.PortsHeld).wanted == ports


def test_ports_come_from_the_range_that_is_asked_for(make_host: MakeHost) -> None:
    host, other = make_host(), make_host()
    first, last = sorted(hold(host, 2))
    other.send(protocol.HoldPorts(1, [], first, last))
    answer = other.expect(protocol.PortsHeld if last - first > 1 else protocol.PortsRefused)
    if isinstance(answer, protocol.PortsHeld):
        assert first < answer.chosen[0] < last
    other.send(protocol.HoldPorts(1, [], first, first))
    (cause,) = other.expect(protocol.PortsRefused).causes
    assert f"from {first} to {first}" in cause_text(cause)


def test_a_stranger_who_takes_the_name_of_a_port_is_named(make_host: MakeHost) -> None:
    host = make_host()
    ports = hold(host, 1)
    host.send(protocol.Shutdown())
    host.expect_end()
    name = f"\0distrun-port-{os.geteuid()}-{ports[0]}"

    def take_the_name(report: Callable[[str], None]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as taken:
            taken.bind(name)
            report("bound")
            signal.pause()

    with Stranger(take_the_name) as stranger:
        assert stranger.report() == "bound"
        other = make_host()
        other.send(protocol.HoldPorts(0, ports))
        (cause,) = other.expect(protocol.PortsRefused).causes
        assert (cause.code, cause.count) == (Code.PORT_NAME_TAKEN, strangers.UID)
    other.send(protocol.HoldPorts(0, ports))
    assert other.expect(protocol.PortsHeld).wanted == ports


def test_an_unbound_port_is_held_again_after_the_attempt(host: Host) -> None:
    """Also if the program has closed a connection, which stays in TIME_WAIT for a minute."""
    (port,) = hold(host, 1)
    for attempt in range(2):
        program = [sys.executable, "-c", SERVES, str(port)]
        host.run("store:0", *program, port=port, binds_port=True, attempt=attempt)
        wait_until(lambda: _is_served(port))
        host.expect(protocol.TaskEnded, "store:0")
        for family in (socket.AF_INET, socket.AF_INET6):
            for options in ((), (socket.SO_REUSEADDR,)):
                with pytest.raises(OSError, match="in use"):
                    bind(port, family, *options).close()

        def listen(report: Callable[[str], None]) -> None:
            try:
                bind(port, socket.AF_INET, socket.SO_REUSEPORT).close()
            except OSError:
                report("refused")
            else:
                report("taken")

        with Stranger(listen) as stranger:
            assert stranger.report() == "refused"
    host.start("store:1", "/missing", port=port, binds_port=True)
    host.expect(protocol.TaskNotStarted)
    with pytest.raises(OSError, match="in use"):
        bind(port, socket.AF_INET).close()


def _is_served(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as client:
            return client.recv(1) == b""
    except OSError:
        return False


SERVES = """
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(sys.argv[1])))
server.listen()
server.accept()[0].close()
"""


def test_no_file_stays_in_shared_folders_if_it_is_stopped(any_host: Host, tmp_path: Path) -> None:
    folders = [tmp_path / f"shared {number}" for number in range(500)]  # which takes a while
    for folder in folders:
        folder.mkdir()
    names = [*map(str, folders)]
    any_host.send(probe_messages.Listen("hello", "a mark", names, workdir=str(tmp_path)))
    assert not any_host.expect(probe_messages.Listening).unwritten
    assert all([each.name for each in folder.iterdir()] == ["a mark"] for folder in folders)
    any_host.send(probe_messages.StopListening())
    any_host.send(protocol.Shutdown())
    any_host.expect_end()
    assert not [each for folder in folders for each in folder.iterdir()]
