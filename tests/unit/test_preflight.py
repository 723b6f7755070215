"""What hosts' answers come to, judged without any host."""

import contextlib
import io
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.messages import hello
from harness.parts.agent import Listener, Loop, PortHolder, Probe, dialer, marks
from harness.parts.cli import LaunchView
from harness.parts.job import events
from harness.parts.plan import Answers, Check, Grade, HostAnswers, judge
from harness.parts.protocol import Cause, Code, HoldPorts, PortsHeld, PortsRefused, Subject
from harness.parts.protocol import probe_messages as probe
from harness.parts.settings import HostSpec
from harness.parts.spec import ProgramKind, ProgramSpec, RoleSpec
from harness.parts.supervisor import JobHosts, Round, dialled_by
from harness.parts.words import cause_advice, cause_text
from harness.plans import role, spec_of
from harness.processes import alive
from harness.values import not_none
from harness.waiting import wait_until

REFUSED = Cause(Code.CONNECTION_REFUSED)
FACTS = probe.ProgramFacts(
    *("python3", "/work", "/work/train.py"),
    is_python=True, digest="aa", python="3.11.4", tensorflow="2.21.0",
)  # fmt: skip


def host(name: str, *, disk: int = 10**9, **about: Any) -> HostAnswers:
    """A host with which all is well, but for what is said; program's facts by their names."""
    facts = {key: about.pop(key) for key in list(about) if key in probe.ProgramFacts._fields}
    inspected = probe.Inspected([FACTS._replace(**facts)], {"/work": disk})
    return HostAnswers(**{"host": name, "ports": 1, "inspected": inspected, **about})


def judged(*hosts: HostAnswers, **about: Any) -> tuple[Check, ...]:
    owners = {f"10.0.0.{number}:20000": each.host for number, each in enumerate(hosts, 1)}
    own = {key: about.pop(key) for key in ("keras", "shared") if key in about}
    program = ProgramSpec(kind=ProgramKind.SCRIPT, target="train.py", workdir="/work", **own)
    given = {"hosts": hosts, "owners": owners, "machines": ("10.0.0.1",), **about}
    return judge(Answers(program=program, **given))


def bad(checks: tuple[Check, ...]) -> list[tuple[str, str, str]]:
    """Host, subject and grade of all that is not good."""
    return [(e.host, e.subject.value, e.grade.value) for e in checks if e.grade is not Grade.OK]


def test_where_all_is_well_every_subject_is_good_on_every_host() -> None:
    checks = judged(host("a"), host("b"))
    assert bad(checks) == []
    twice = judged(host("a"), host("b"), owners={"10.0.0.1:2": "a", "10.0.0.1:3": "b"})
    assert bad(twice) == [("b", "network", "warning")]
    assert {check.subject.value for check in checks if check.host == "b"} == {
        *("network", "clock", "disk", "workdir", "program", "script", "python", "tensorflow")
    }


@pytest.mark.parametrize(
    ("about", "subject", "grade", "words"),
    [
        ({"python": "3.11.9"}, "python", "warning", "Python 3.11.9; that of a, b has 3.11.4"),
        ({"python": "3.12.1"}, "python", "failed", "Python 3.12.1; that of a, b has 3.11.4"),
        ({"tensorflow": ""}, "tensorflow", "failed", "no TensorFlow; that of a, b has"),
        ({"python_problem": Cause(Code.INTERPRETER_FAILED, status=1), "python": ""},
         "python", "failed", "exited with 1"),
        ({"digest": "bb"}, "script", "failed", "not the same as on a, b"),
        ({"workdir_problem": Cause(Code.WORKDIR_NOT_ENTERED, errno=13)},
         "workdir", "failed", "Permission denied"),
        ({"program_problem": Cause(Code.PROGRAM_NOT_FOUND)}, "program", "failed", "in PATH"),
        ({"disk": 50_000_000}, "disk", "warning", "50 MB free in the working folder, /work"),
        ({"clock_offset": -90.0, "clock_tolerance": 0.1}, "clock", "warning", "90.0 s behind"),
        ({"listen_errors": (Cause(Code.PORT_NOT_LISTENING, port=20000, errno=98),)},
         "network", "failed", "20000 cannot be listened"),
    ],
)  # fmt: skip
def test_one_host_differs(about: dict[str, Any], subject: str, grade: str, words: str) -> None:
    twice = probe.Inspected([FACTS, FACTS], {"/work": 10**9})  # of two roles
    checks = judged(host("a", inspected=twice), host("b"), host("c", **about))
    assert bad(checks) == [("c", subject, grade)]
    (check,) = (each for each in checks if each.grade is not Grade.OK)
    assert words in cause_text(check.cause)
    assert cause_advice(check.cause)
    assert check.cause.hosts in ((), ("a", "b"))
    assert check.subject in Subject


def blind(name: str, *folders: str) -> HostAnswers:
    """A host that does not see what another one has written to these folders."""
    lacks = [Cause(Code.FOLDER_NOT_SHARED, path=each) for each in folders]
    return host(name, dialled=probe.Dialled([], unseen=lacks))


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"ab": 9e8, "ba": 8e8, "ac": 7e8, "ca": 9e8, "bc": 8e8, "cb": 9e8}, "ok ok ok"),
        ({"ab": 9e8, "ba": 8e8, "ac": 9e7, "ca": 9e8, "bc": 9e7, "cb": 9e8}, "ok ok warning"),
        # What it receives is slow as well: its confirmations wait behind what it sends.
        ({"ab": 9e8, "ba": 8e8, "ac": 9e5, "ca": 3e5, "bc": 9e5, "cb": 1e6}, "ok ok warning"),
        ({"ab": 9e8, "ba": 8e8, "ac": 0.0, "ca": 0.0, "bc": 0.0, "cb": 0.0}, "ok ok note"),
        ({}, "note note note"),
    ],
)
def test_a_host_with_a_much_slower_link(rates: dict[str, float], expected: str) -> None:
    """Its own link, in either direction: what others receive from it does not count as theirs."""
    pairs = tuple((pair[0], pair[1], rate) for pair, rate in rates.items())
    checks = judged(host("a"), host("b"), host("c"), rates=pairs)
    found = [each for each in checks if each.subject is Subject.BANDWIDTH]
    assert " ".join(each.grade.value for each in found) == expected
    assert Subject.BANDWIDTH not in {each.subject for each in judged(host("a"))}


FOLDERS: dict[str, Any] = {"folders": ("x", "args"), "shared": ("x",), "writer": "a"}
UNWRITTEN = (Cause(Code.FOLDER_NOT_USABLE, path="x", errno=30),)
OTHERS: dict[str, Any] = {"python": "3.12.1", "tensorflow": "2.22.0"}
LACKING = host("a", tensorflow="", missing=("tensorflow",))
LONELY = host(
    "b", ports=0, calls=1, dialled=probe.Dialled([probe.Unreachable("10.0.0.1", 20000, REFUSED)])
)
CASES: dict[str, tuple[list[HostAnswers], dict[str, Any], list[tuple[str, str, str]]]] = {
    # Newcomers are measured by the other hosts, however many they are.
    "most hosts": ([host("a"), host("b", **OTHERS), host("c", **OTHERS)], {},
                   [("a", "python", "failed"), ("a", "tensorflow", "failed")]),
    "newcomers": ([host("a"), host("b", **OTHERS), host("c", **OTHERS)],
                  {"newcomers": frozenset("bc")},
                  [(each, what, "failed") for each in "bc" for what in ("python", "tensorflow")]),
    # Hosts do not need a TensorFlow that only newcomers have.
    "lacking": ([LACKING, host("b")], {}, [("a", "tensorflow", "failed")]),
    "only a newcomer has it": ([LACKING, host("b")], {"newcomers": frozenset("b")}, []),
    "a clock that may be right": (
        [host("a"), host("b", clock_offset=3.0, clock_tolerance=2.5)], {}, []),
    "a version that is not known": ([host("a"), host("b", tensorflow="unknown")], {}, []),
    "no TensorFlow anywhere": ([host(each, tensorflow="") for each in "ab"], {},
                               [(each, "tensorflow", "note") for each in "ab"]),
    # This machine's script is what the others are held to.
    "script": ([host("a"), host("b"), host("c", digest="bb")], {"digest": "bb"},
               [("a", "script", "failed"), ("b", "script", "failed")]),
    # Only folders that the spec names must be shared; what is not written, nobody sees.
    "a folder of the spec": ([host("a"), blind("b", "x")], FOLDERS, [("b", "shared", "failed")]),
    "one of arguments": ([host("a"), blind("b", "args")], FOLDERS, [("b", "shared", "warning")]),
    "not written": ([host("a", unwritten=UNWRITTEN), blind("b", "x")], FOLDERS,
                    [("a", "shared", "failed")]),
    "keras 2": ([host("a", has_tf_keras=True), host("b", has_tf_keras=False)], {"keras": 2},
                [("b", "keras", "failed")]),
    "keras 3": ([host("a", has_tf_keras=False)], {"keras": 3}, []),
    "an evaluator that reaches nobody": ([host("a"), LONELY], {}, [("a", "network", "warning")]),
}  # fmt: skip
"""The hosts' answers, what is known of them, and what is not good."""


@pytest.mark.parametrize("case", CASES)
def test_hosts_are_measured_by_each_other(case: str) -> None:
    hosts, about, expected = CASES[case]
    checks = judged(*hosts, **about)
    assert sorted(bad(checks)) == expected
    assert all(cause_advice(each.cause) for each in checks if each.grade is Grade.FAILED)


@pytest.mark.parametrize("count", [32, 33, 1000])
def test_of_many_hosts_each_is_dialled_by_several_others_and_the_first_by_all(count: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    found = {host: {*dialled_by(host, hosts)} for host in hosts}
    if count <= 32:
        assert all(others == found.keys() for others in found.values())
        return
    assert all("h0" in others and host in others for host, others in found.items())
    callers = Counter(other for host, others in found.items() for other in others if other != host)
    assert min(callers[host] for host in found) >= 5
    assert sum(callers.values()) <= count * (count.bit_length() + 1)
    assert max(callers[host] for host in found if host != "h0") <= count.bit_length()


def notes(checks: tuple[Check, ...]) -> list[str]:
    """What is told of the servers' security."""
    found = [each for each in checks if each.subject is Subject.SECURITY]
    return [cause_text(each.cause) for each in found if each.grade is Grade.NOTE]


def test_checks_are_in_the_order_of_the_hosts() -> None:
    found = [each.host for each in judged(host("b"), host("a", clock_offset=9.0), job_disk=1)]
    assert found == sorted(found, key=["b", "a", found[-1]].index)
    assert len({*found}) == 3


def exposed(name: str, users: list[str], addresses: list[str], **about: Any) -> HostAnswers:
    inspected = probe.Inspected([FACTS], {"/work": 10**9}, users, addresses)
    return host(name, **{"inspected": inspected, **about})


def test_other_users_and_addresses_from_which_the_servers_are_reached_are_named() -> None:
    users = ["alice", "bob", "carol", "dan", "x" * 1000]
    text, two = notes(judged(exposed("a", users, []), exposed("b", users[:2], [])))
    assert text.endswith("servers: alice, bob, carol and 2 more")
    assert two.endswith("servers: alice, bob")
    assert notes(judged(exposed("a", users, [], ports=0))) == [], "it has only an evaluator"
    addresses = ["10.0.0.5", "8.8.8.8", "not an address", "2001:4860:4860::8888", "fd00::1"]
    (text,) = notes(judged(exposed("a", [], addresses)))
    assert text.endswith("also listen on 8.8.8.8, 2001:4860:4860::8888")


def test_a_folder_that_another_host_has_just_made_is_looked_for_again(tmp_path: Path) -> None:
    """A network disk may say for seconds that it is not there; a link leads to its own place."""
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    (tmp_path / "disk").mkdir()
    order = probe.Listen("", "mark", ["link"], str(tmp_path))
    assert not marks.write(order)
    assert (tmp_path / "disk" / "mark").exists()

    def make() -> None:
        (tmp_path / "disk" / "run").mkdir()
        (tmp_path / "disk" / "run" / "other").touch()

    timer = threading.Timer(0.5, make)
    timer.start()
    assert not marks.unseen(order, "other")
    timer.join()
    marks.remove(order)
    assert not (tmp_path / "disk" / "mark").exists()


def test_a_host_that_ends_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, may_write, may_remove = (tmp_path / name for name in ("writing", "write", "remove"))
    write, remove = marks.write, marks.remove

    def write_late(order: probe.Listen) -> list[Cause]:
        os.symlink(str(os.getpid()), writing)
        wait_until(may_write.exists)
        return write(order)

    def remove_late(order: probe.Listen) -> probe.StoppedListening:
        wait_until(may_remove.exists)
        return remove(order)

    monkeypatch.setattr(marks, "write", write_late)
    monkeypatch.setattr(marks, "remove", remove_late)
    agents = Probe(Loop(), PortHolder(), lambda _: None)
    agents.execute(probe.Listen("", "mark", [str(tmp_path)]), "")
    wait_until(writing.is_symlink)
    (tmp_path / "mark").touch()
    agents.remove_marks()  # does not wait for the disk
    may_write.touch()
    may_remove.touch()
    wait_until(lambda: not alive(int(os.readlink(writing))))
    wait_until(lambda: not (tmp_path / "mark").exists())


@pytest.mark.parametrize("step", [0, 1])
def test_of_many_findings_few_are_shown_and_what_is_alike_once(
    step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    view, state = LaunchView(mock.Mock(), io.StringIO()), mock.Mock(job_id="j-1", replacements=())
    for each in judged(*(host(f"h{n}", disk=(50 + step * n) * 10**6) for n in range(23))):
        if each.grade is Grade.WARNING:
            view.show_event(events.PreflightFound(at=1.0, **vars(each)), state)
    view.show_event(events.PreflightEnded(at=1.0, checks=30, failed=0, warnings=23), state)
    said = capsys.readouterr().err
    assert said.count("warning: ") == (20 if step else 1)
    assert said.endswith("distrun: and 3 more: distrun events j-1\n") is bool(step)
    assert "warning: h[0-22]: 50 MB free" in said or step
    assert said.count("\n  ") == 1, "the advice"


def test_why_a_host_is_lost_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A job that waits for a host does not continue."""
    state = mock.Mock(job_id="j-1", replacements=(), incidents={1: ...}, outcome=None)
    view, why = LaunchView(mock.Mock(), io.StringIO()), Cause(Code.LINK_CLOSED)
    view.show_event(events.LogsIncomplete(at=1.0, host="h2", cause=why), state)
    view.show_event(events.HostLost(at=1.0, host="h2", cause=why), state)
    said = capsys.readouterr().err
    assert said.endswith(f"be here: {cause_text(why)}\ndistrun: h2 is lost\n"), said
    for number in range(9):  # a switch has failed
        view.show_event(events.LinkLost(at=2.0, host=f"g{number}", cause=why), state)
    *lost, more = capsys.readouterr().err.splitlines()
    assert (len(lost), more) == (4, "distrun: the same of more hosts: distrun events j-1")
    view.show_event(events.LinkLost(at=99.0, host="g1", cause=why), state)
    assert "g1" in capsys.readouterr().err


# The first round ----------------------------------------------------------------------------------


SHORT = "only 0 of 1 ports from 23000 to 23000 are free"
TOO_FEW = PortsRefused([Cause(Code.TOO_FEW_FREE_PORTS, total=1, text="23000-23000")])


def preparation(
    hosts: list[str],
    *roles: RoleSpec,
    send: Callable[[str, Any], None] = lambda _host, _order: None,
    **about: Any,
) -> Round:
    """The first round of a job; all hosts have said hello."""
    spec = spec_of(*roles, hosts=tuple(HostSpec(name=name) for name in hosts))
    made = Round(JobHosts(spec, send, Path("/record"), **about))
    for name in hosts:
        machine = name.rpartition("=")[2]
        said = hello(machine, machine)
        made.hosts.add_hello(name, said)
        made.receive(name, said)
    return made


def test_all_hosts_that_cannot_hold_their_ports_are_named() -> None:
    made = preparation(["h1", "h2", "h3"], role("worker", 3))
    made.receive("h3", TOO_FEW)
    made.receive("h2", PortsHeld([23000], []))
    assert not made.is_finished
    made.receive("h1", TOO_FEW)
    cause = not_none(made.error).as_cause()
    assert cause_text(cause) == f"on h1 {SHORT}; on h3 {SHORT}"
    assert cause_advice(cause) == "widen `ports: {range: …}`"


def test_another_name_of_the_same_machine_is_no_other_job() -> None:
    workers = role("worker", addresses=("a=m:23005", "b=m:23005", "c:23005"))
    made = preparation(["a=m", "b=m", "c"], workers)
    refused = PortsRefused([Cause(Code.PORT_HELD_BY_JOB, port=23005)])
    codes = [[e.code for e in made.hosts.ports_refused(n, refused).within] for n in ("b=m", "c")]
    assert codes == [[Code.ONE_MACHINE_TWICE], [Code.PORT_HELD_BY_JOB]]


def test_programs_are_tried_out_on_a_spare_that_cannot_run_all_tasks_at_once() -> None:
    orders: list[tuple[str, Any]] = []
    names = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    hosts = [HostSpec(name=name, gpus=(0,), spare=name == names[2]) for name in names]
    spec = spec_of(role("worker", 2, gpus=1), hosts=tuple(hosts))
    job = JobHosts(spec, lambda *order: orders.append(order), Path("/record"), has_preflight=True)
    made = Round(job)
    for name in names:
        job.add_hello(name, hello(name, name, gpus=[0]))
        made.receive(name, job.hellos[name])
    for name in names[:2]:
        made.receive(name, PortsHeld([20001], []))
    asked = [name for name, order in orders if isinstance(order, probe.Inspect) and order.programs]
    assert asked == names


# Dialling -----------------------------------------------------------------------------------------


GREETING, PASSWORD = "distrun here\n", "secret"


def answer(order: Any) -> Any:
    if isinstance(order, HoldPorts):
        return PortsHeld(list(range(20001, 20001 + order.free)), [])
    answers: dict[type[Any], Any] = {
        probe.Listen: probe.Listening([], 0.0),
        probe.Dial: probe.Dialled([]),
        probe.Measure: probe.Measured(1e9),
        probe.StopListening: probe.StoppedListening(),
        probe.Inspect: probe.Inspected([], {}),
    }
    return answers[type(order)]


@pytest.mark.parametrize(("count", "rounds"), [(16, 15), (17, 5)])
def test_each_host_receives_from_one_and_sends_to_one_in_a_round(count: int, rounds: int) -> None:
    """Whatever hosts there are on which no task has a port, and whomever else a host dials."""
    names = [f"10.0.0.{number}" for number in range(1, count + 2)]
    orders: list[tuple[str, Any]] = []
    made = preparation(
        *(names, role("worker", count), role("evaluator")),
        send=lambda host, order: orders.append((host, order)),
        checks_all=True,
        measures=True,
    )
    receivers, senders = Counter[str](), Counter[str]()
    while orders:
        host, order = orders.pop(0)
        if isinstance(order, probe.Measure):
            receivers[host] += 1
            senders[order.targets[0].machine] += 1
        made.receive(host, answer(order))
    assert receivers == senders == dict.fromkeys(names[:-1], rounds)
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
    return dialer.measure(
        probe.Measure([probe.Target("127.0.0.1", [port], greeting)], password, 0.5)
    ).rate


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


def test_who_answers_is_known_by_the_greeting_which_may_take_longer_than_to_connect() -> None:
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(answering(""))
        right = stack.enter_context(answering(GREETING, after=0.7))
        other = stack.enter_context(answering("SSH-2.0-\n"))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            refused = closed.getsockname()[1]
        targets = [
            probe.Target("127.0.0.1", [silent, right, other, refused], GREETING),
            probe.Target("no-such-name.invalid", [1], GREETING),
        ]
        found = dialer.dial(probe.Dial(targets, 0.5)).unreachable
    assert {(each.machine, each.port): each.cause.code for each in found} == {
        ("no-such-name.invalid", 1): Code.NAME_NOT_RESOLVED,
        ("127.0.0.1", silent): Code.GREETING_MISSING,
        ("127.0.0.1", other): Code.GREETING_DIFFERENT,
        ("127.0.0.1", refused): Code.CONNECTION_REFUSED,
    }
