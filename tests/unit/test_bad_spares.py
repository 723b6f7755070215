"""Hosts that cannot be used, or not any more, neither end the job nor keep it waiting."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from distrun import events, lifecycle
from distrun.agent import protocol
from distrun.agent.protocol import Cause, Code, probe_messages
from distrun.agent.protocol.channel import encode_body
from distrun.cli.cause_text import cause_text
from distrun.spec.model import HostSpec, RestartSpec, RoleSpec, Timeouts
from distrun.strategies import Role
from harness.hostile import EVIL, GOOD, NOW, Agent, World
from harness.values import not_none

Tamper = Callable[[bytes], Sequence[bytes]]
WORKERS = (GOOD, "h1", "h2")
RESTART = RestartSpec(max=3, backoff=0.1)


def kind(body: bytes) -> str:
    return str(json.loads(body.partition(b"\n")[0])["type"])


def without(*kinds: str) -> Tamper:
    return lambda body: [] if kind(body) in kinds else [body]


def changed(name: str, **fields: Any) -> Tamper:
    """Change fields of one kind of message."""

    def tamper(body: bytes) -> Sequence[bytes]:
        found = json.loads(body.partition(b"\n")[0])
        return [json.dumps({**found, **fields}).encode()] if found["type"] == name else [body]

    return tamper


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Start a job of workers with spares, the first of which is the host `evil`."""
    worlds: list[World] = []

    def make(
        tamper: Tamper,
        *,
        workers: int = 2,
        spares: Sequence[str] = (EVIL,),
        room: int | None = None,
        restart: RestartSpec = RESTART,
        log_max_size: int | None = None,
        **about: Any,
    ) -> World:
        hosts = [HostSpec(name=name) for name in WORKERS[:workers]]
        hosts += [HostSpec(name=name, spare=True, slots=room) for name in spares]
        changes = {
            "strategy": "multi_worker_mirrored",
            "roles": (RoleSpec(role=Role.WORKER, count=workers),),
            "hosts": tuple(hosts),
            "restart": restart,
            "log_max_size": log_max_size,
            "timeouts": dataclasses.replace(Timeouts(), **{"start": 100.0, "link": 20.0, **about}),
        }
        worlds.append(World(tmp_path, tamper, changes=changes))
        worlds[-1].settle()
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def advance(world: World, until: Callable[[], bool], seconds: float = 300.0) -> None:
    """Let time pass until something is so. Every agent sends heartbeats."""
    due = world.now + seconds
    while not until():
        assert world.now < due, [line[:300] for line in world.lines[-20:]]
        assert world.state.outcome is None, world.state.outcome
        world.now += 2.0
        for agent in world.agents.values():
            agent.beat()
        world.settle()
        world._pool.check_exits()
        world.settle()


def is_running(world: World) -> bool:
    return world.state.phase is lifecycle.JobPhase.RUNNING


def left_out(world: World) -> dict[str, str]:
    """By each host that is left out, why."""
    found = [each for each in world.record if isinstance(each, events.HostLeftOut)]
    assert len({each.host for each in found}) == len(found)
    return {each.host: cause_text(each.cause) for each in found}


# Before the start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "order"),
    [
        ("Hello", "did not answer at all"),
        ("FilesReady", "did not receive the program's files"),
        ("Listening", "did not answer Listen"),
        ("Dialled", "did not answer Dial"),
        ("StoppedListening", "did not answer StopListening"),
        ("Inspected", "did not answer Inspect"),
    ],
)
def test_a_silent_spare_does_not_keep_the_job_from_its_start(
    start: Callable[..., World], answer: str, order: str
) -> None:
    world = start(without(answer))
    began = world.now
    advance(world, lambda: is_running(world), 99.0)
    assert world.now - began < 40  # a third of timeouts.start
    assert order in left_out(world)[EVIL]
    assert EVIL not in world.faults


@pytest.mark.parametrize(
    "stage", ["Hello", "FilesRequested", "FileDataReceived", "Listening", "Dialled", "Inspected"]
)
@pytest.mark.parametrize("way", ["lost", "fault"])
def test_a_spare_that_fails_before_the_start_is_left_out(
    start: Callable[..., World], stage: str, way: str
) -> None:
    """Its agent is killed, or its disk is full, right after a message, or before an answer."""
    full = encode_body(protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/run", errno=28), NOW), 90)
    sent: list[str] = []

    def tamper(body: bytes) -> Sequence[bytes]:
        if stage in sent:
            return []
        sent.append(kind(body))
        if kind(body) != stage:
            return [body]
        return [*([body] if stage == "Hello" else []), *([full] if way == "fault" else [])]

    world = start(tamper)
    if way == "lost":
        world.agents[EVIL].exit()
    advance(world, lambda: is_running(world), 99.0)
    assert EVIL in left_out(world)
    assert world.state.outcome is None
    assert world.state.hosts[EVIL].why_unusable is not None


@pytest.mark.parametrize(
    "tamper",
    [
        changed("Hello", cores=-1.0),
        changed("Hello", type="Nonsense"),
        changed("Hello", folder="/x" * 1_000_000),
        changed("Hello", folder="/x\0"),
        changed("Hello", token="é"),
        changed("Hello", gpus=list(range(450_000))),
        lambda body: [b"{"] if kind(body) == "Hello" else [body],
        lambda body: (
            [encode_body(protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/", errno=28), NOW), 1)]
            if kind(body) == "Hello"
            else [body]
        ),
    ],
    ids=["cores", "type", "folder", "NUL", "token", "gpus", "not JSON", "fault"],
)
def test_a_spare_with_an_invalid_hello_is_left_out(
    start: Callable[..., World], tamper: Tamper
) -> None:
    world = start(tamper)
    advance(world, lambda: is_running(world), 60.0)
    assert [*left_out(world)] == [EVIL]
    assert not world.state.hosts[EVIL].is_usable


def test_a_spare_that_answers_too_late_is_a_spare_again(start: Callable[..., World]) -> None:
    kept: list[bytes] = []

    def tamper(body: bytes) -> Sequence[bytes]:
        if kind(body) == "Hello":
            kept.append(body)
            return []
        return [body]

    # The login takes longer than the job waits, and less than it may.
    world = start(tamper, start=20.0)
    advance(world, lambda: is_running(world), 19.0)
    assert EVIL in left_out(world)
    agent = world.agents[EVIL]
    agent._tamper = lambda body: [body]
    agent._send_body(kept[0])
    advance(
        world,
        lambda: any(isinstance(each, events.Synced) and each.host == EVIL for each in world.record),
    )
    assert world.state.hosts[EVIL].is_usable


# Answers that are too long -----------------------------------------------------------------

REFUSED = ["10.0.0.1", 20000, {"code": "connection_refused"}]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "Dialled",
            {"unreachable": [[f"sp{number}", 1, REFUSED[2]] for number in range(5000)]},
        ),
        ("Dialled", {"unreachable": [["sp2", 1, REFUSED[2]]]}),
        ("Dialled", {"unreachable": [REFUSED, REFUSED]}),
        ("Listening", {"errors": [{"code": "port_not_listening", "port": 1}] * 1000}),
        ("Inspected", {"facts": [{f"/{number}": 0 for number in range(5000)}]}),
        (
            "Inspected",
            {"programs": [["python3", str(each), {}, "/src/main.py"] for each in range(5000)]},
        ),
        (
            "Inspected",
            {"programs": [["python3", "/src", {"HOME": "/"}, "/src/main.py"]]},
        ),
    ],
    ids=["dialled", "invented", "twice", "listening", "disks", "programs", "environ"],
)
def test_an_answer_with_more_than_was_asked_is_a_fault_of_the_spare(
    start: Callable[..., World], name: str, fields: dict[str, Any]
) -> None:
    world = start(changed(name, **fields))
    advance(world, lambda: is_running(world), 60.0)
    assert EVIL in left_out(world)
    assert world.faults[EVIL].code is Code.REPORT_INVALID
    assert sum(map(len, world.lines)) < 50_000
    assert {*world.faults} == {EVIL}


# In a replacement --------------------------------------------------------------------------


def places(world: World) -> dict[str, str]:
    """The host of each task, once all tasks run again; until then an empty mapping."""
    is_replaced = bool(world.state.replacements) and is_running(world)
    return {task.name: task.host for task in world.state.tasks.values()} if is_replaced else {}


def lose(world: World, *hosts: str) -> None:
    for host in hosts:
        world.agents[host].exit()


@pytest.mark.parametrize(
    ("answer", "order"),
    [
        ("PortsHeld", "HoldPorts"),
        ("Listening", "Listen"),
        ("Dialled", "Dial"),
        ("StoppedListening", "StopListening"),
        ("Inspected", "Inspect"),
    ],
)
def test_a_new_host_that_does_not_answer_is_replaced_in_time(
    start: Callable[..., World], answer: str, order: str
) -> None:
    world = start(lambda body: [body], spares=(EVIL, "sp2"))
    world.agents[EVIL]._tamper = without(answer)
    lose(world, "h1")
    advance(world, lambda: bool(places(world)))
    assert places(world) == {"worker:0": GOOD, "worker:1": "sp2"}
    assert f"did not answer {order}" in left_out(world)[EVIL]
    assert [*left_out(world)] == [EVIL]


def test_a_job_that_waits_for_its_only_new_host_names_what_it_waits_for(
    start: Callable[..., World],
) -> None:
    world = start(lambda body: [body])
    world.agents[EVIL]._tamper = without("Dialled")
    lose(world, "h1")
    with pytest.raises(AssertionError):
        advance(world, lambda: False)
    cause = cause_text(not_none(world.state.outcome).cause)
    assert "did not answer Dial within" in cause
    assert "no host has room" not in cause
    assert left_out(world) == {}


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1"])
def test_a_new_host_with_an_address_that_it_cannot_have_is_left_out(
    start: Callable[..., World], address: str
) -> None:
    """It has the port of another host's task, and claims to have its address, or no address."""
    world = start(changed("Hello", address=address), spares=(EVIL, "sp2"))
    lose(world, "h1")
    advance(world, lambda: bool(places(world)))
    assert places(world)["worker:1"] == "sp2"
    assert [*left_out(world)] == [EVIL]


def without_calls(order: probe_messages.Dial) -> Sequence[protocol.Report]:
    """Reach no other host."""
    refused = Cause(Code.CONNECTION_REFUSED)
    return [
        probe_messages.Dialled(
            [
                probe_messages.Unreachable(target.machine, port, refused)
                for target in order.targets
                for port in target.ports
            ]
        )
    ]


def test_a_new_host_that_reaches_no_other_is_left_out_alone(start: Callable[..., World]) -> None:
    world = start(lambda body: [body], workers=3, spares=(EVIL, "sp1", "sp2"))
    world.agents[EVIL]._on_dial = without_calls  # type: ignore[method-assign, assignment]
    lose(world, "h1", "h2")
    advance(world, lambda: bool(places(world)))
    assert {*places(world).values()} == {GOOD, "sp1", "sp2"}
    assert [*left_out(world)] == [EVIL]


def test_a_new_host_that_others_do_not_reach_is_left_out_alone(
    start: Callable[..., World],
) -> None:
    """The host that stayed says so, and another new one."""
    world = start(lambda body: [body], workers=3, spares=(EVIL, "sp1", "sp2"))

    def on_dial(order: probe_messages.Dial) -> Sequence[protocol.Report]:
        targets = [each for each in order.targets if each.machine == "10.0.0.0"]
        return without_calls(order._replace(targets=targets))

    for name in (GOOD, "sp1"):
        world.agents[name]._on_dial = on_dial  # type: ignore[method-assign, assignment]
    lose(world, "h1", "h2")
    advance(world, lambda: bool(places(world)))
    assert {*places(world).values()} == {GOOD, "sp1", "sp2"}
    assert [*left_out(world)] == [EVIL]


def test_a_new_host_that_other_new_ones_do_not_reach_is_left_out(
    start: Callable[..., World],
) -> None:
    """It answers the host that stayed, and no other. One host alone is not believed."""
    world = start(lambda body: [body], workers=3, spares=(EVIL, "sp1", "sp2", "sp3"))

    def on_dial(order: probe_messages.Dial) -> Sequence[protocol.Report]:
        targets = [each for each in order.targets if each.machine == "10.0.0.0"]
        return without_calls(order._replace(targets=targets))

    for name in ("sp1", "sp2", "sp3"):
        world.agents[name]._on_dial = on_dial  # type: ignore[method-assign, assignment]
    lose(world, "h1", "h2")
    advance(world, lambda: bool(places(world)))
    assert {*places(world).values()} == {GOOD, "sp2", "sp3"}
    assert [*left_out(world)] == ["sp1", EVIL]


def test_a_new_host_that_accuses_a_spare_is_left_out_itself(start: Callable[..., World]) -> None:
    world = start(lambda body: [body], spares=(EVIL, "sp2"))
    world.agents[EVIL]._tamper = changed("Dialled", unreachable=[["sp2", 1, REFUSED[2]]])
    lose(world, "h1")
    advance(world, lambda: bool(places(world)))
    assert places(world)["worker:1"] == "sp2"
    assert {*world.faults} == {EVIL}


def test_a_new_host_that_fails_and_lives_on_does_not_keep_the_job(
    start: Callable[..., World],
) -> None:
    full = encode_body(protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/run", errno=28), NOW), 90)
    world = start(lambda body: [body], spares=(EVIL, "sp2"))
    world.agents[EVIL].is_immortal = True
    world.agents[EVIL]._tamper = lambda body: (
        [full] if kind(body) == "PortsHeld" else without("AgentExiting")(body)
    )
    lose(world, "h1")
    advance(world, lambda: bool(world.faults))
    began = world.now
    advance(world, lambda: bool(places(world)))
    assert places(world)["worker:1"] == "sp2"
    assert world.now == began


def without_calls_to(*machines: str) -> Callable[[probe_messages.Dial], Sequence[protocol.Report]]:
    """Reach all hosts but these."""

    def on_dial(order: probe_messages.Dial) -> Sequence[protocol.Report]:
        targets = [each for each in order.targets if not machines or each.machine in machines]
        return without_calls(order._replace(targets=targets))

    return on_dial


@pytest.mark.parametrize("failing", ["dials nobody", "is not reached"])
def test_a_new_host_is_not_left_out_for_a_failure_between_others(
    start: Callable[..., World], failing: str
) -> None:
    world = start(lambda body: [body], workers=3, spares=("sp1", "sp2"))
    if failing == "dials nobody":
        world.agents["h2"]._on_dial = without_calls_to()  # type: ignore[method-assign, assignment]
    else:
        for name in (GOOD, "sp1", "sp2"):
            world.agents[name]._on_dial = without_calls_to("10.0.0.3")  # type: ignore[method-assign, assignment]
    lose(world, "h1")
    advance(world, lambda: bool(places(world)))
    assert {*places(world).values()} == {GOOD, "sp1", "sp2"}
    assert [*left_out(world)] == ["h2"]


def test_a_failure_between_others_that_passes_costs_no_host(start: Callable[..., World]) -> None:
    """Nobody has room for the tasks of a host that did not answer: the plan is made again."""
    world = start(lambda body: [body], workers=3, spares=("sp1",))
    agent = world.agents[GOOD]
    calls = agent._on_dial
    agent._on_dial = without_calls_to("10.0.0.3")  # type: ignore[method-assign, assignment]
    lose(world, "h1")
    advance(world, lambda: any(isinstance(each, events.PlanFailed) for each in world.record))
    agent._on_dial = calls  # type: ignore[method-assign]
    advance(world, lambda: bool(places(world)))
    assert {*places(world).values()} == {GOOD, "sp1", "h2"}
    assert left_out(world) == {}


def test_a_full_disk_of_the_record_is_no_fault_of_a_new_host(
    start: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start(lambda body: [body], spares=("sp1",))
    monkeypatch.setattr("distrun.supervisor.probe.free_bytes", lambda _: 10)
    lose(world, "h1")
    advance(world, lambda: any(isinstance(each, events.PlanFailed) for each in world.record))
    monkeypatch.undo()
    advance(world, lambda: bool(places(world)))
    assert left_out(world) == {}


def test_an_answer_to_a_plan_that_was_given_up_is_not_one_to_the_next(
    start: Callable[..., World],
) -> None:
    """A second host is lost before the spare has held a port for the first one's task."""
    world = start(lambda body: [body], workers=3, room=2)
    kept: list[bytes] = []

    def tamper(body: bytes) -> Sequence[bytes]:
        if kind(body) == "PortsHeld" and len(kept) < 3:
            kept.append(body)
            return []
        return [body]

    spare = world.agents[EVIL]
    spare._tamper = tamper
    lose(world, "h1")
    advance(world, lambda: len(kept) == 1)
    lose(world, "h2")
    advance(world, lambda: len(kept) == 3)  # when its link is lost, and the host
    for body, port in zip(kept, (b"30000", b"31000", b"20000"), strict=True):
        spare._send_body(body.replace(b"20000", port))
        world.settle()
    advance(world, lambda: bool(places(world)))
    assert places(world) == {"worker:0": GOOD, "worker:1": EVIL, "worker:2": EVIL}
    assert world.faults == {}


def test_a_lost_host_is_tried_again_although_the_link_of_another_was_lost_then(
    start: Callable[..., World],
) -> None:
    world = start(lambda body: [body], spares=(), link=60.0)
    good = world.agents[GOOD]
    lose(world, "h1")
    advance(world, lambda: world.state.hosts["h1"].lost is not None)
    good.is_immortal = True
    good._tamper = without("Reattached")  # its link stays lost while h1 is tried again
    good.close()
    began = world.now
    advance(world, lambda: world.now > began + 15)
    good._tamper = lambda body: [body]
    advance(world, lambda: world.state.hosts[GOOD].link_lost is None)
    world.agents["h1"] = Agent("h1", lambda body: [body])
    advance(world, lambda: bool(places(world)), 99.0)
    assert places(world) == {"worker:0": GOOD, "worker:1": "h1"}


# After tasks have moved --------------------------------------------------------------------


def test_a_job_that_continued_with_fewer_workers_succeeds(start: Callable[..., World]) -> None:
    """What is known of the worker that was dropped, such as its progress, is forgotten."""
    fewer = dataclasses.replace(RESTART, min_workers=1)
    world = start(lambda body: [body], spares=(), restart=fewer)
    assert {*world.progress} == {"worker:0", "worker:1"}
    lose(world, "h1")
    advance(world, lambda: bool(places(world)))
    assert places(world) == {"worker:0": GOOD}
    world.agents[GOOD].end_tasks()
    world.settle()
    world.advance()
    assert isinstance(world.record[-1], events.JobEnded)
    assert not_none(world.state.outcome).exit_code == 0


@pytest.mark.parametrize("log_max_size", [None, 1000])
def test_a_host_does_not_speak_for_a_task_that_has_left_it(
    start: Callable[..., World], log_max_size: int | None
) -> None:
    leaves = dataclasses.replace(RESTART, max=9, host_failures=2)
    spares = (EVIL, "sp2")
    world = start(lambda body: [body], spares=spares, restart=leaves, log_max_size=log_max_size)
    lose(world, "h1")
    advance(world, lambda: places(world).get("worker:1") == EVIL)
    evil, log = world.agents[EVIL], world._log_of("worker:1")

    def has_moved() -> bool:
        evil.end_tasks(1)
        return places(world).get("worker:1") == "sp2"

    advance(world, has_moved)
    written = log.read_bytes()
    assert written.endswith(b"go\n")
    for offset in (7, 7000):
        evil._send(protocol.LogData("worker-1.log", offset, b"forged\n"), is_kept=False)
        evil._send(protocol.LogData("worker-1.idx", 16, b"12345678"), is_kept=False)
    evil._send(protocol.Progress("worker:1", {"STEP": "999999"}, NOW), is_kept=False)
    evil._send(protocol.CpuMeasured({"worker:1": 1e6}))
    world.settle()
    assert log.read_bytes() == written
    assert world.progress["worker:1"].values["STEP"] == "1"
