"""Hosts that cannot be used, or not any more, neither end the job nor keep it waiting."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from harness.hostile import EVIL, GOOD, NOW, Agent, Tamper, World, changed, kind, without
from harness.parts.agent import protocol
from harness.parts.channel import encode_body
from harness.parts.job import events
from harness.parts.lifecycle import lifecycle
from harness.parts.protocol import Cause, Code, TransferProgress, probe_messages
from harness.parts.settings import HostSpec, RestartSpec
from harness.parts.spec import RoleSpec, Timeouts
from harness.parts.top import Role
from harness.parts.words import cause_text
from harness.values import not_none

Start = Callable[..., World]
RESTART = RestartSpec(max=3, backoff=0.1)
FULL = encode_body(protocol.Fault(Cause(Code.LOG_DISK_FULL, path="/run", errno=28), NOW), 90)


@pytest.fixture
def start(hostile: Start) -> Start:
    """Start a job of workers with spares, the first of which is the host `evil`."""

    def make(
        tamper: Tamper = lambda body: [body],
        *,
        workers: int = 2,
        spares: Sequence[str] = (EVIL,),
        room: int | None = None,
        restart: RestartSpec = RESTART,
        log_max_size: int | None = None,
        **about: Any,
    ) -> World:
        hosts = [HostSpec(name=name) for name in (GOOD, "h1", "h2")[:workers]]
        hosts += [HostSpec(name=name, spare=True, slots=room) for name in spares]
        changes = {
            "strategy": "multi_worker_mirrored",
            "roles": (RoleSpec(role=Role.WORKER, count=workers),), "hosts": tuple(hosts),
            "restart": restart, "log_max_size": log_max_size,
            "timeouts": dataclasses.replace(Timeouts(), **{"start": 100.0, "link": 20.0, **about}),
        }  # fmt: skip
        world = hostile(tamper, changes=changes)
        world.settle()
        return world

    return make


def is_running(world: World) -> bool:
    return world.state.phase is lifecycle.JobPhase.RUNNING


def left_out(world: World) -> dict[str, str]:
    """By each host that is left out, why."""
    found = world.of(events.HostLeftOut)
    assert len({each.host for each in found}) == len(found)
    return {each.host: cause_text(each.cause) for each in found}


SILENT = {
    "Hello": "did not answer at all", "FilesReady": "did not receive the program's files",
    "Dialled": "did not answer Dial",
}  # fmt: skip


@pytest.mark.parametrize("answer", SILENT)
def test_a_silent_spare_does_not_keep_the_job_from_its_start(start: Start, answer: str) -> None:
    world = start(without(answer))
    began = world.now
    world.until(lambda: is_running(world), 99.0)
    assert world.now - began < 40  # a third of timeouts.start
    assert SILENT[answer] in left_out(world)[EVIL]
    assert EVIL not in world.faults


@pytest.mark.parametrize(
    "case",
    ["Hello lost", "Hello fault", "FilesRequested fault", "FileDataReceived lost",
     "Listening fault", "Dialled lost", "Inspected fault"],
)  # fmt: skip
@mock.patch("harness.hostile.NO_CLIENTS.broadcast")
def test_a_spare_that_fails_at_the_start_is_left_out(shown: Any, start: Start, case: str) -> None:
    """Its agent is killed, or its disk is full, right after a message, or before an answer."""
    sent, (stage, way) = list[str](), case.split()

    def tamper(body: bytes) -> Sequence[bytes]:
        if stage in sent:
            return []
        sent.append(kind(body))
        if kind(body) != stage:
            return [body]
        return [*([body] if stage == "Hello" else []), *([FULL] if way == "fault" else [])]

    world = start(tamper)
    if way == "lost":
        world.agents[EVIL].exit()
    world.until(lambda: is_running(world), 99.0)
    assert EVIL in left_out(world)
    assert world.state.outcome is None
    assert world.state.hosts[EVIL].why_unusable is not None
    last = [each for (each,), _ in shown.call_args_list if isinstance(each, TransferProgress)][-1]
    assert last.done == last.total, "its bar would be shown for ever"


OFFENCES: dict[str, Tamper] = {
    "folder": changed("Hello", folder="/x" * 1_000_000),
    "fault": lambda body: [FULL if kind(body) == "Hello" else body],
    "several checks": changed("Inspected", disks={f"/{number}": 0 for number in range(3)}),
}


@pytest.mark.parametrize("offence", OFFENCES)
def test_a_spare_that_cannot_be_used_is_left_out(start: Start, offence: str) -> None:
    world = start(OFFENCES[offence])
    world.until(lambda: is_running(world), 60.0)
    assert [*left_out(world)] == [EVIL]
    assert not world.state.hosts[EVIL].is_usable
    assert sum(map(len, world.lines)) < 50_000
    assert {*world.faults} <= {EVIL}


def places(world: World) -> dict[str, str]:
    """The host of each task, once all tasks run again; until then an empty mapping."""
    is_replaced = bool(world.state.replacements) and is_running(world)
    return {task.name: task.host for task in world.state.tasks.values()} if is_replaced else {}


def lose(world: World, *hosts: str) -> None:
    for host in hosts:
        world.agents[host].exit()


@pytest.mark.parametrize(
    ("answer", "order"), [("PortsHeld", "HoldPorts"), ("Dialled", "Dial"), ("Inspected", "Inspect")]
)
def test_a_new_host_that_is_silent_is_replaced(start: Start, answer: str, order: str) -> None:
    world = start(spares=(EVIL, "sp2"))
    world.agents[EVIL]._tamper = without(answer)
    lose(world, "h1")
    world.until(lambda: places(world))
    assert places(world) == {"worker:0": GOOD, "worker:1": "sp2"}
    assert f"did not answer {order}" in left_out(world)[EVIL]
    assert [*left_out(world)] == [EVIL]


OF_PODS = ("pod_deleted", "pod_preempted", "pod_ended", "pod_out_of_memory")
PASSES = (*OF_PODS, "agent_terminated", "guard_died", "lease_expired", "link_closed")


@pytest.mark.parametrize("code", [*PASSES, "log_disk_full", "report_invalid"])
def test_a_lost_host_is_connected_to_again_if_its_fault_can_pass(start: Start, code: str) -> None:
    world = start()
    world._supervisor.emit(events.HostFault(at=NOW, host="h1", cause=Cause(Code(code))))
    lose(world, "h1")
    world.agents["h1"] = again = Agent("h1", lambda body: [body])
    greet = mock.Mock(side_effect=again._on_configure)
    vars(again)["_on_configure"] = greet
    world.until(lambda: places(world))
    world.wait(60)
    ready = [each.host for each in world.of(events.HostReady)]
    assert ready.count("h1") == 1 + (code in PASSES)
    former = [dict(each.args[0].former) for each in greet.mock_calls]
    assert former == [{"worker:1": 0}] * (code in PASSES), "what may be left there is ended"


def test_a_job_that_waits_for_its_only_new_host_names_it(start: Start) -> None:
    world = start()
    world.agents[EVIL]._tamper = without("Dialled")
    lose(world, "h1")
    with pytest.raises(AssertionError):
        world.until(lambda: False)
    cause = repr(not_none(world.state.outcome).cause)
    assert ("order_not_answered" in cause, "no_room" in cause) == (True, False)
    assert left_out(world) == {}


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1"])
def test_a_new_host_with_an_address_it_cannot_have_is_left_out(start: Start, address: str) -> None:
    """It has the port of another host's task, and claims to have its address, or no address."""
    world = start(changed("Hello", address=address), spares=(EVIL, "sp2"))
    lose(world, "h1")
    world.until(lambda: places(world))
    assert places(world)["worker:1"] == "sp2"
    assert [*left_out(world)] == [EVIL]


def cannot_reach(*machines: str) -> Callable[[probe_messages.Dial], Sequence[protocol.Report]]:
    """Answer that these hosts cannot be reached; without any, that none can."""

    def on_dial(order: probe_messages.Dial) -> Sequence[protocol.Report]:
        unreachable = [
            probe_messages.Unreachable(target.machine, port, Cause(Code.CONNECTION_REFUSED))
            for target in order.targets
            if not machines or target.machine in machines
            for port in target.ports
        ]
        return [probe_messages.Dialled(unreachable)]

    return on_dial


EVILS, OF_H2 = "10.0.0.0", "10.0.0.3"
"""Addresses."""
DIALS: dict[str, tuple[dict[str, tuple[str, ...]], str, str, set[str], list[str]]] = {
    "it reaches no other": (
        {EVIL: ()}, "evil sp1 sp2", "h1 h2", {GOOD, "sp1", "sp2"}, [EVIL]),
    "the host that stayed does not reach it, and another new one": (
        {GOOD: (EVILS,), "sp1": (EVILS,)}, "evil sp1 sp2", "h1 h2", {GOOD, "sp1", "sp2"}, [EVIL]),
    "another new one does not reach it": (
        {"sp1": (EVILS,)}, "evil sp1 sp2", "h1 h2", {GOOD, "sp1", "sp2"}, [EVIL]),
}  # fmt: skip
"""Who reaches whom not, the spares, who is lost; the hosts in use then, and those left out."""


@pytest.mark.parametrize("case", DIALS)
def test_a_host_that_reaches_nobody_or_is_not_reached_is_left_out(start: Start, case: str) -> None:
    unreached, spares, lost, used, out = DIALS[case]
    world = start(workers=3, spares=spares.split())
    for name, machines in unreached.items():
        world.agents[name]._on_dial = cannot_reach(*machines)  # type: ignore[method-assign, assignment]
    lose(world, *lost.split())
    world.until(lambda: places(world))
    assert {*places(world).values()} == used
    assert [*left_out(world)] == out


def test_a_failure_between_others_that_passes_costs_no_host(start: Start) -> None:
    """Nobody has room for the tasks of a host that did not answer: the plan is made again."""
    world = start(workers=3, spares=("sp1",))
    failing = mock.patch.object(world.agents[GOOD], "_on_dial", cannot_reach(OF_H2))
    with failing:
        lose(world, "h1")
        world.until(lambda: world.of(events.PlanFailed))
    world.until(lambda: places(world))
    assert {*places(world).values()} == {GOOD, "sp1", "h2"}
    assert left_out(world) == {}


@pytest.mark.parametrize("log_max_size", [None, 1000])
def test_a_host_does_not_speak_for_a_former_task(start: Start, log_max_size: int | None) -> None:
    leaves = dataclasses.replace(RESTART, max=9, host_failures=2)
    spares = (EVIL, "sp2")
    world = start(spares=spares, restart=leaves, log_max_size=log_max_size)
    lose(world, "h1")
    world.until(lambda: places(world).get("worker:1") == EVIL)
    evil, log = world.agents[EVIL], world._log_of("worker:1")

    def has_moved() -> bool:
        evil.end_tasks(1)
        return places(world).get("worker:1") == "sp2"

    world.until(has_moved)
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
