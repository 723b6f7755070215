"""Who is reached when ports of other hosts are dialled, and how fast hosts receive, on sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distrun.agent.linux.facts import Facts
from distrun.agent.loop import Loop
from distrun.agent.probe import dialer
from distrun.agent.probe.listener import Listener
from distrun.agent.protocol import (
    PROTOCOL,
    Code,
    Hello,
    HoldPorts,
    PortsHeld,
    Report,
    probe_messages,
)
from distrun.agent.protocol.causes import Subject
from distrun.agent.protocol.probe_messages import Dial, Measure, Measured, Target
from distrun.agent.tasks.ports import PortHolder
from distrun.preflight import Grade
from distrun.spec.model import HostSpec
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.round import Round

from .plans import role, spec_of

GREETING, PASSWORD = "distrun here\n", "secret"


def answer(order: Any) -> Report:
    if isinstance(order, HoldPorts):
        return PortsHeld(list(range(20001, 20001 + order.free)), [])
    answers: dict[type[Any], Report] = {
        probe_messages.Listen: probe_messages.Listening([], 0.0),
        probe_messages.Dial: probe_messages.Dialled([]),
        Measure: Measured(1e9),
        probe_messages.StopListening: probe_messages.StoppedListening(),
        probe_messages.Inspect: probe_messages.Inspected([], Facts({})),
    }
    return answers[type(order)]


@pytest.mark.parametrize(("count", "rounds"), [(2, 1), (16, 15), (17, 5), (40, 6)])
def test_each_host_receives_from_one_and_sends_to_one_in_each_round(
    count: int, rounds: int
) -> None:
    """Whatever hosts there are on which no task has a port, and whomever else a host dials."""
    names = [f"10.0.0.{number}" for number in range(1, count + 2)]
    roles = role("worker", count), role("evaluator")
    spec = spec_of(*roles, hosts=tuple(HostSpec(name=name) for name in names))
    orders: list[tuple[str, Any]] = []
    hosts = JobHosts(
        spec,
        lambda host, order: orders.append((host, order)),
        Path("/record"),
        checks_all=True,
        measures=True,
    )
    made = Round(hosts)
    for name in names:
        hello = Hello(PROTOCOL, 1, name, "3.8.0", 1.0, [], 0.0, address=name)
        hosts.add_hello(name, hello)
        made.receive(name, hello)
    receivers: Counter[str] = Counter()
    senders: Counter[str] = Counter()
    while orders:
        host, order = orders.pop(0)
        if isinstance(order, Measure):
            receivers[host] += 1
            senders[order.targets[0].machine] += 1
        made.receive(host, answer(order))
    workers = names[:-1]
    assert receivers == senders == dict.fromkeys(workers, rounds)
    found = [each for each in made.checks or () if each.subject is Subject.BANDWIDTH]
    assert [each.grade for each in found] == [Grade.OK] * count + [Grade.NOTE]


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """A port on which a host's agent listens during a preflight."""
    loop, ports = Loop(), PortHolder()
    (port,) = ports.hold_free(1)
    listener = Listener(loop)
    assert listener.open(ports, GREETING, PASSWORD) == []
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            loop.turn(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield port
    finally:
        is_over.set()
        thread.join()
        listener.close()
        ports.release([port])
        loop.close()


def rate(port: int, greeting: str = GREETING, password: str = PASSWORD) -> float:
    return dialer.measure(Measure([Target("127.0.0.1", [port], greeting)], password, 0.5)).rate


def is_cut_off(stranger: socket.socket) -> bool:
    """Whether a connection is reset, perhaps after the greeting was received."""
    try:
        while stranger.recv(len(GREETING)):
            pass
    except ConnectionResetError:
        return True
    return False


def test_only_who_knows_the_password_receives_and_others_do_not_disturb() -> None:
    with listening() as port:
        strangers = []
        for said in (b"", b"x", b"secre", b"secrets", bytes(99)):
            strangers.append(socket.create_connection(("127.0.0.1", port), 10.0))
            strangers[-1].sendall(said)
        assert rate(port) > 1e6
        assert rate(port, password="other") == rate(port, greeting="x") == 0.0
        for stranger in strangers[1:]:
            assert is_cut_off(stranger)
        for stranger in strangers:
            stranger.close()


def test_a_sender_that_leaves_meanwhile_has_no_rate() -> None:
    """However fast it has sent before."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            guest, _ = server.accept()
            with guest:
                guest.sendall(GREETING.encode())
                guest.recv(len(PASSWORD))
                time.sleep(0.2)  # what comes at first does not count
                guest.sendall(bytes(1 << 21))

        thread = threading.Thread(target=send)
        thread.start()
        assert rate(server.getsockname()[1]) == 0.0
        thread.join()


# Who is reached -----------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(greeting: str, *, after: float = 0.0) -> Iterator[int]:
    """A port on which one caller hears so much, so many seconds later, until it hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                guest, _ = server.accept()
                with guest:
                    time.sleep(after)
                    guest.sendall(greeting.encode())
                    guest.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def failures(port: int, seconds: float) -> list[Code]:
    """What is wrong with that port, as its caller sees it."""
    order = Dial([Target("127.0.0.1", [port], GREETING)], seconds)
    return [each.cause.code for each in dialer.dial(order).unreachable]


@pytest.mark.parametrize(
    ("said", "missed"),
    [
        (GREETING, []),
        ("SSH-2.0-\n", [Code.GREETING_DIFFERENT]),
        (GREETING[:5], [Code.GREETING_MISSING]),
        ("", [Code.GREETING_MISSING]),
    ],
)
def test_who_answers_is_known_by_the_greeting(said: str, missed: list[Code]) -> None:
    with answering(said) as port:
        assert failures(port, 0.1 if missed == [Code.GREETING_MISSING] else 60.0) == missed


def test_who_is_there_may_take_longer_to_greet_than_to_connect() -> None:
    with answering(GREETING, after=0.3) as port:
        assert failures(port, 0.2) == []


def test_ports_are_dialled_at_the_same_time_and_each_failure_is_named() -> None:
    with answering("", after=1.0) as silent, answering(GREETING) as right:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            refused = closed.getsockname()[1]
        targets = [
            Target("127.0.0.1", [silent, right, refused], GREETING),
            Target("no-such-name.invalid", [1], GREETING),
        ]
        began = time.monotonic()
        found = dialer.dial(Dial(targets, 0.2)).unreachable
        assert time.monotonic() - began < 5.0
    codes = {(each.machine, each.port): each.cause.code for each in found}
    assert codes.pop(("no-such-name.invalid", 1)) is Code.NAME_NOT_RESOLVED
    assert codes == {
        ("127.0.0.1", silent): Code.GREETING_MISSING,
        ("127.0.0.1", refused): Code.CONNECTION_REFUSED,
    }
