"""Where the time goes, by samples: frames as py-spy names them, and CPU time. Where tasks stand."""

import json
import os
import re
import zlib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness.loops import SimulatedLoop
from harness.parts.advice import Kind, Obstacle, Reason, Symptom, advise_by_profiles, gpus
from harness.parts.agent import profile as sampling
from harness.parts.cli import network_lines, problems, profile_view, speedscope
from harness.parts.formats import advice_text, gpus_text, reason_text
from harness.parts.job import ProcessStacks, Stacks, stacks
from harness.parts.lifecycle import ChunkedMap, HostState, JobState, TaskPhase, TaskState
from harness.parts.linux import processes
from harness.parts.profile import TaskProfile, find_slow_link, find_traffic, profile, straggler
from harness.parts.protocol import Order, ProgramData, ProgramRequested, StacksDumped
from harness.parts.report import read_flames
from harness.parts.supervisor import StackCollector
from harness.parts.top import Role, replace
from harness.requirements import need_tensorflow
from harness.tables import read_table
from harness.values import not_none

SITE = "/v/lib/python3.11/site-packages/"
TF, KERAS = f"{SITE}tensorflow/python/", f"{SITE}tf_keras/src/"
TRAIN = ("train", "/home/u/train.py", 41)
MODULE = ("<module>", "/home/u/train.py", 60)
EXECUTE = ("quick_execute", f"{TF}eager/execute.py", 53)
CALL = ("Function.__call__", f"{TF}eager/polymorphic_function/polymorphic_function.py", 833)
SAVES = ("CheckpointManager.save", f"{TF}checkpoint/checkpoint_management.py", 808)
STEP = (EXECUTE, CALL, TRAIN, MODULE)
TRACES = (("func_graph_from_py_func", f"{TF}framework/func_graph.py", 9), CALL, TRAIN, MODULE)
COMPILES = f"{TF}eager/polymorphic_function/tracing_compilation.py"
LOOKUP = ("trace_function", COMPILES, 178)
POOL = ("IMapIterator.next", "/usr/lib/python3.11/multiprocessing/pool.py", 9)
SUMMARIES = ("TensorBoard._log_weights", f"{KERAS}callbacks/tensorboard.py", 1)
ALL_REDUCE = ("CollectiveAllReduce.reduce", f"{TF}distribute/cross_device_ops.py", 1226)
SERVES = (("join", f"{TF}training/server_lib.py", 300), MODULE)
EVALUATES = (EXECUTE, ("Model.evaluate", f"{KERAS}engine/training.py", 9), TRAIN)
LOADS = (("load_batch", "/home/u/data.py", 12), TRAIN, MODULE)
GENERATOR = (
    ("batches", "/home/u/data.py", 7),
    ("generator_py_func", f"{TF}data/ops/from_generator_op.py", 210),
    ("FuncRegistry.__call__", f"{TF}ops/script_ops.py", 149),
)


def test_frames_of_tensorflow_are_where_they_are_looked_for() -> None:
    need_tensorflow()
    folder = Path(not_none(not_none(find_spec("tensorflow")).origin)).parent
    for name, path, *_ in (EXECUTE, CALL, SAVES, TRACES[0], LOOKUP, ALL_REDUCE, *GENERATOR[1:]):
        text = (folder / path.partition("/tensorflow/")[2]).read_text()
        assert f"def {name.rpartition('.')[2]}(" in text, name


def gpu(clock: int) -> list[list[str]]:
    """What nvidia-smi shows of a GPU that its heat slows, and of one that shows nothing."""
    na = "[N/A]"
    shown = ["0", "GPU-a", "35", "2048", "16384", str(clock), "1980", "84", "0x0000000000000060"]
    return [shown, ["1", "GPU-b", na, na, na, str(clock), na, na, na]]


RECORDING: dict[str, Any] = {
    "frames": [], "stacks": [], "threads": [], "readings": [], "throttled": 0.0, "host_busy": 2.0,
    "helpers_busy": 0.0, "host_cores": 8, "cores": 8, "quota": 0.0, "nice": 0, "swapped_bytes": 0,
    "clock_mhz": 3000, "connections": [], "celsius": 50, "gpus": gpu(1800),
}  # fmt: skip
"""What a host sends of a task that has a machine of eight cores, without what was seen."""
Frames = tuple[tuple[Any, ...], ...]


def recorded(
    *parts: tuple[Frames, float, float],
    task: str = "worker:0",
    others: tuple[tuple[Frames, float], ...] = (),
    wait: float = 0.0,
    **more: Any,
) -> ProcessStacks:
    """What a host sends. `parts`: frames of the main thread, seconds, and cores in use meanwhile.

    `others`: the same of a second thread. `wait`: for a core, a share of the time.
    """
    frames: dict[Any, int] = {}
    seen: dict[Any, int] = {}

    def thread(spans: Any) -> list[tuple[float, int]]:
        found, at = [], 0.0
        for each, seconds in (*spans, ((), 0.0)):
            indices = tuple(frames.setdefault((*frame, "")[:4], len(frames)) for frame in each)
            found.append((at, seen.setdefault(indices, len(seen))))
            at += 1000 * seconds
        return found

    main = thread([(each, seconds) for each, seconds, _ in parts])
    readings, used, at = [], 0.0, 0.0
    for _, seconds, cores in parts:
        for _ in range(round(seconds * 50)):
            readings.append((at, used, wait * at))
            used, at = used + 20 * cores, at + 20
    readings.append((at, used, wait * at))
    threads = [*([thread(others)] if others else []), main]
    seen_by_host = {"threads": threads, "readings": readings, "host_busy": used / 1000}
    recording = {**RECORDING, **seen_by_host, "frames": list(frames), "stacks": list(seen), **more}
    (found,) = stacks.decode(json.dumps([{"task": task, "pid": 7, "recording": recording}]))
    return found


def profiled(*parts: Any, **more: Any) -> TaskProfile:
    return not_none(profile(recorded(*parts, **more)))


def frame(text: str) -> tuple[Any, ...]:
    if found := re.fullmatch(r"([^@ ]+)@(.+?):(\d+)(?: (.*))?", text):
        name, path, line, source = found.groups("")
        return name, path.format(TF=TF, KERAS=KERAS, SITE=SITE), int(line), source
    return globals()[text]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("stack", "kind"), read_table(Path(__file__).with_name("stacks.txt"), "stacks").items()
)
def test_a_stack_tells_what_a_task_does(stack: str, kind: str) -> None:
    frames = tuple(map(frame, stack.split(" < ")))
    assert profiled((frames, 1.0, 1.0)).shares == {Kind(kind): pytest.approx(1.0)}


def test_cpu_time_tells_a_step_from_waiting_and_lines_are_the_users() -> None:
    named_tuple = (("<lambda>", "<string>", 1), TRAIN, MODULE)
    found = profiled((STEP, 0.6, 2.0), (STEP, 0.3, 0.0), (named_tuple, 0.1, 1.0))
    assert found.shares == {
        Kind.STEP: pytest.approx(0.6), Kind.WAITING: pytest.approx(0.3),
        Kind.OWN: pytest.approx(0.1),
    }  # fmt: skip
    assert found.places[Kind.STEP] == found.places[Kind.OWN] == "train, train.py:41"
    assert found.own == pytest.approx(0.7)
    joins = (("Thread.join", "/usr/lib/python3.11/threading.py", 9), MODULE)
    found = profiled((joins, 1.0, 1.0), others=((STEP, 1.0),))
    assert found.shares == {Kind.STEP: pytest.approx(1.0)}
    shares = profiled((SERVES, 1.0, 0.2), wait=0.6).shares
    expected = {Kind.STEP: 0.2, Kind.NO_CORE: 0.6, Kind.SERVING: 0.2}
    assert shares == pytest.approx(expected, abs=0.1)


def test_a_step_that_waits_for_a_generator_waits_for_input() -> None:
    alternating = [(STEP, 0.3, 0.0), (STEP, 0.2, 1.0)]
    found = profiled(*alternating, others=((GENERATOR, 0.3), ((), 0.2)))
    assert found.shares[Kind.INPUT] == pytest.approx(0.6)
    assert found.places[Kind.INPUT] == "batches, data.py:7"
    made = "outer_factory.<locals>.inner_factory.<locals>.tf__load.<locals>.decode"
    converted = (((made, "/tmp/__autograph_generated_filex.py", 16), *GENERATOR[1:]), 0.5)
    found = profiled(*alternating, others=(converted,))
    assert found.places[Kind.INPUT] == "load.<locals>.decode, as AutoGraph has converted it"
    loads = (("OwnedIterator.__next__", f"{TF}data/ops/iterator_ops.py", 825), TRAIN, MODULE)
    found = profiled((loads, 0.5, 0.0), others=((GENERATOR, 0.5),))
    assert found.places == {Kind.INPUT: "batches, data.py:7"}
    assert profiled((loads, 0.5, 0.1), wait=0.9).shares[Kind.INPUT] < 0.2  # its threads starve
    found = profiled(*alternating, others=((GENERATOR[1:], 0.3), ((), 0.2)))  # of a library
    assert found.shares[Kind.INPUT] == pytest.approx(0.6)
    never_waits = profiled((STEP, 0.5, 1.0), others=((GENERATOR, 0.5),))
    assert never_waits.shares[Kind.INPUT] == pytest.approx(1.0)
    # One that computes has the core, or waits for one.
    for line, wait, share in (("", 0.0, 0.6), ("", 0.5, 0.3), ("time.sleep(1)", 0.0, 0.0)):
        others = (((*GENERATOR[0], line), *GENERATOR[1:]), 0.3), ((), 0.2)
        sampled = recorded((STEP, 0.5, 1.0), others=others, wait=wait)
        alone = not_none(profile(sampled, {"worker:0"}))
        assert alone.shares.get(Kind.INPUT, 0.0) == pytest.approx(share)


def slow(*parts: Any, **more: Any) -> Any:
    """The straggler where worker:1 is as said, and the others wait half of the time."""
    usual = [(STEP, 0.5, 1.0), (STEP, 0.5, 0.0)]
    profiles = [profiled(*usual, task=f"worker:{n}") for n in (0, 2)]
    profiles.append(profiled(*parts, task="worker:1", **more))
    return straggler(profiles, {"worker:0", "worker:1", "worker:2"}, {"worker:1": "h"})


@pytest.mark.parametrize(
    ("parts", "more", "obstacles"),
    [
        ([(STEP, 0.5, 1.0), ((SAVES, TRAIN), 0.5, 0.1)], {}, [Obstacle.MORE_OF_A_KIND]),
        ([(STEP, 0.05, 0.0), ((SAVES, TRAIN), 0.95, 0.1)], {"wait": 0.6},
         [Obstacle.MORE_OF_A_KIND]),  # it hardly steps: a core is not what it lacks
        ([(STEP, 1.0, 1.0)], {}, [Obstacle.LONGER_STEPS]),
        ([(STEP, 1.0, 1.0)], {"others": ((GENERATOR, 0.8), ((), 0.2))},
         [Obstacle.BUSY_GENERATOR]),  # it computes in Python
        ([(STEP, 1.0, 1.0)], {"others": (((TRAIN,), 0.8), ((), 0.2))}, [Obstacle.BUSY_THREAD]),
        ([(STEP, 1.0, 0.4)], {"throttled": 0.6, "quota": 0.4}, [Obstacle.THROTTLED]),
        ([(STEP, 0.8, 0.4), (LOADS, 0.2, 0.1)], {"throttled": 1.6, "quota": 0.4},
         [Obstacle.THROTTLED, Obstacle.MORE_OF_A_KIND]),
        ([(STEP, 1.0, 0.4)], {"wait": 0.6, "nice": 10}, [Obstacle.NO_CORE, Obstacle.NICE]),
        ([(STEP, 1.0, 0.4)], {"wait": 0.6, "host_busy": 7.9},
         [Obstacle.NO_CORE, Obstacle.BUSY_NEIGHBOUR]),
        ([((), 1.0, 0.4)], {"wait": 0.6, "nice": 10}, [Obstacle.NO_CORE, Obstacle.NICE]),
        ([(STEP, 1.0, 1.0)], {"cores": 1}, [Obstacle.FEWER_CORES, Obstacle.LONGER_STEPS]),
        ([(STEP, 1.0, 0.4)], {"wait": 0.6, "helpers_busy": 1.9},
         [Obstacle.OWN_PROCESSES, Obstacle.NO_CORE]),
        ([(STEP, 1.0, 1.0)], {"swapped_bytes": 1 << 30, "clock_mhz": 1200},
         [Obstacle.SWAPPED, Obstacle.SLOWER_CLOCK, Obstacle.LONGER_STEPS]),
        ([(STEP, 1.0, 1.0)], {"gpus": gpu(900)}, [Obstacle.SLOWER_GPU, Obstacle.LONGER_STEPS]),
    ],
)  # fmt: skip
def test_a_straggler_is_named(parts: Any, more: dict[str, Any], obstacles: list[Obstacle]) -> None:
    found = slow(*parts, **more)
    assert found.task == "worker:1"
    assert found.gain == pytest.approx(0.5, abs=0.02)
    assert [each.obstacle for each in found.reasons] == obstacles
    assert all(reason_text(each) for each in found.reasons)
    assert all(each.amount <= 1.0 for each in found.reasons if each.obstacle is Obstacle.THROTTLED)


def test_a_slow_link_is_told_though_another_task_works_longer_to_receive() -> None:
    trips = {(0, 1): 13, (1, 0): 30, (1, 2): 14, (2, 1): 17, (0, 2): 17, (2, 0): 2}
    look = []
    for n, (cores, wait) in enumerate(((0.05, 0.18), (0.04, 0.09), (0.09, 0.4))):
        ends = [((10 * a + b, 10 * b + a), trip) for (a, b), trip in trips.items() if a == n]
        counted = [(*ports, 9000, 9000, 0, 0, 1000 * trip, 9) for ports, trip in ends]
        task, part = f"worker:{n}", (STEP, 1.0, cores)
        look.append(profiled(part, task=task, wait=wait, connections=counted))
    members = [each.task for each in look]
    found = not_none(advise_by_profiles([look] * 3, members, {}, dict.fromkeys(members, 3.0)))
    assert (found.symptom, found.task, found.usual) == (Symptom.SLOW_LINK, "worker:1", 0.002)
    both = find_traffic(look[:2])
    assert find_slow_link(both, members, {}) is None  # a busy host answers late, too
    far = not_none(find_slow_link(both, members, {name: name for name in members}))
    for rate, words in ((2e6, ", all that the"), (9e6, " of 9 MB/s that the"), (0.0, "")):
        shown = network_lines([replace(both[0], sent_bytes=2e6, delivery_bytes=rate)], far)
        assert f"worker:0 to worker:1: 2 MB/s{words}" in shown[0]
        assert rate or "delivers" not in shown[0]
    assert "hosts are slow: a packet takes 13 ms" in shown[1]


@pytest.mark.parametrize(
    ("part", "more", "symptom"),
    [
        ((LOADS, 0.3, 1.0), {}, Symptom.INPUT),
        ((TRACES, 0.3, 1.0), {}, Symptom.TRACING),
        (((TRAIN, MODULE), 0.3, 1.0), {}, None),  # nobody knows whether its own Python must be so
        (((TRAIN, MODULE), 0.3, 0.0), {}, Symptom.BLOCKED),
        (
            ((TRAIN, MODULE), 0.3, 0.0),
            {"wait": 1.0, "first_thread": [(0, 0), (9, 0)]},
            Symptom.BLOCKED,
        ),  # only a library's threads wait for cores
        (((TRAIN, MODULE), 0.3, 0.0), {"wait": 0.5, "first_thread": [(0, 0), (9, 9)]}, None),
        ((EVALUATES, 0.6, 1.0), {}, None),  # it may well be so
        ((STEP, 0.3, 0.4), {"throttled": 0.3, "quota": 0.5}, Symptom.THROTTLED),
    ],
)
@pytest.mark.parametrize("tasks", [1, 3])
def test_advice_is_a_tenth_of_the_time(part: Any, more: Any, symptom: Any, tasks: int) -> None:
    names = [f"worker:{n}" for n in range(tasks)]
    look = [profiled((STEP, 1 - part[1], 1.0), part, task=name, **more) for name in names]
    without = [profiled((STEP, 1.0, 1.0), task=name) for name in names]
    rates = dict.fromkeys(names, 2.0)
    found = advise_by_profiles([look] * 3, names, {}, rates)
    assert (found and found.symptom) == symptom
    if found is not None:
        assert found.amount == pytest.approx(part[1], abs=0.02)
        assert advice_text(found, "job")
    assert advise_by_profiles([look, without, look], names, {}, rates) is None


def test_what_one_of_two_tasks_does_is_not_said_of_all() -> None:
    names = ["worker:0", "worker:1"]
    for part, more, said in (
        (
            (STEP, 0.5, 1.0),
            {"throttled": 0.44, "quota": 0.3},
            "quota of 0.3 cores of a cgroup stops w",
        ),
        ((LOADS, 0.5, 1.0), {}, ""),
    ):
        look = [profiled((STEP, 1.0, 1.0)), profiled((STEP, 0.5, 1.0), part, task=names[1], **more)]
        found = advise_by_profiles([look] * 3, names, {}, dict.fromkeys(names, 2.0))
        assert said in (advice_text(found, "job") if found else ""), found
        assert bool(found) is bool(said)


def test_a_parameter_server_without_time_and_what_has_the_cores_are_told() -> None:
    client = profiled((STEP, 0.3, 1.0), (STEP, 0.7, 0.0), task="chief:0")
    quota: dict[str, Any] = {"throttled": 0.9, "quota": 0.1}
    told = []
    for cores, more in ((1.0, {}), (0.1, quota), (0.4, {"wait": 0.6}), (0.5, {})):
        look = [client, profiled((SERVES, 1.0, cores), task="ps:0", **more)]
        found = advise_by_profiles([look] * 3, (), {}, {"chief:0": 9.0}, {"ps:0"})
        told.append(found is not None and found.symptom is Symptom.WAITED_FOR)
    assert told == [True, True, False, False]
    own = {"wait": 0.6, "helpers_busy": 3.0}, "its other proc"
    for more, words in ((quota, "its cgroup's"), ({"wait": 0.6, "host_busy": 6.4}, "other"), own):
        look = [profiled((STEP, 1.0, 0.4), **more)]
        view = profile_view(look, None, Stacks(), 80, {}, has_program=True)
        assert str(view.renderables[-1]).startswith(f"worker:0: {words}")


@pytest.mark.parametrize(
    ("tasks", "busy", "rate", "is_told"),
    [(2, 0.4, 20.0, True), (2, 0.4, 2.0, False), (2, 0.7, 20.0, False), (1, 0.4, 20.0, False)],
)
def test_short_waiting_steps_are_told(tasks: int, busy: float, rate: float, is_told: bool) -> None:
    names = [f"worker:{n}" for n in range(tasks)]
    look = [profiled((STEP, busy, 1.0), (STEP, 1 - busy, 0.0), task=name) for name in names]
    found = advise_by_profiles([look] * 3, names, {}, dict.fromkeys(names, rate))
    assert (found is not None and found.symptom is Symptom.SMALL_STEPS) is is_told
    assert advise_by_profiles([look[:1]] * 3, names, {}, {"worker:0": rate}) is None


def test_steps_without_cores_of_a_task_that_is_alone_or_has_gpus_wait_for_no_task() -> None:
    names = ["worker:0", "worker:1"]
    processes = [recorded((STEP, 0.4, 1.0), (STEP, 0.6, 0.0), task=name) for name in names]
    alone = not_none(profile(processes[0], names[:1]))
    assert alone.shares[Kind.IDLE] == pytest.approx(0.6)
    look = [not_none(profile(each, names, names)) for each in processes]
    assert [Kind.WAITING in each.shares for each in (alone, *look)] == [False] * 3
    assert advise_by_profiles([look] * 3, names, {}, dict.fromkeys(names, 20.0)) is None
    busier = not_none(profile(recorded((STEP, 1.0, 1.0), task="worker:1"), names, names))
    assert straggler([look[0], busier], names, {}) is None
    saves = not_none(profile(recorded(((SAVES, TRAIN), 1.0, 1.0), task="worker:1"), names, names))
    assert not_none(straggler([look[0], saves], names, {})).task == "worker:1"


def test_what_sets_a_task_apart_that_is_behind_is_told() -> None:
    late = profiled((STEP, 1.0, 0.4), task="worker:1", wait=0.6, nice=9)
    look, rates = [profiled((STEP, 1.0, 1.0)), late], {"worker:0": 2.0, "worker:1": 1.0}
    found = not_none(advise_by_profiles([look] * 3, rates, {}, rates))  # of a group
    assert (found.symptom, found.task) == (Symptom.BEHIND, "worker:1")
    assert [each.obstacle for each in found.reasons] == [Obstacle.NO_CORE, Obstacle.NICE]


@pytest.mark.parametrize(
    ("commands", "used", "pages", "number"),
    [
        (["conda run train", "bash run.sh", "python train.py"], [1.5, 0.0, 9.0], [5, 1, 90], 2),
        (["python train.py", "python train.py"], [2.0, 9.0], [9, 9], 0),
        (["python train.py", "python -c multiprocessing.spawn.main"], [2.0, 9.0], [9, 9], 0),
        (["python train.py", "gzip -9"], [2.0, 9.0], [90, 2], 0),
        (["bash run.sh", "python train.py"], [0.0, 0.1], [1, 9], 1),
    ],
)
def test_the_process_that_does_the_work_is_sampled(
    commands: list[str], used: list[float], pages: list[int], number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sampling, "cpu_seconds", used.__getitem__)
    monkeypatch.setattr(sampling, "_pages", pages.__getitem__)
    monkeypatch.setattr(processes, "command", commands.__getitem__)
    assert sampling._worker([*range(len(used))]) == number


def test_of_many_tasks_for_long_an_answer_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.time = clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(sampling, "time", clock)
    monkeypatch.setattr(sampling, "cpu_seconds", lambda _: 1000 + clock.now)
    found = sampling.record(None, {f"worker:{n}": [os.getpid()] for n in range(8)}, 240, 1 << 20)
    read = stacks.decode(json.dumps(found))
    assert [len(not_none(each.recording).readings) > 1000 for each in read] == [True] * 8
    assert read[0].error == "there is no py-spy"
    found = sampling.record(None, {f"worker:{n}": [os.getpid()] for n in range(8)}, 240, 1 << 17)
    assert ["too many samples" in each["error"] for each in found] == [False] * 3 + [True] * 5


def test_a_thread_that_has_ended_is_not_recorded_on() -> None:
    """py-spy says only when a stack changes, not that its thread has ended."""
    seen, found = sampling._Recording("worker:0", 1, None, 4, ([], [])), dict[str, Any]()
    where = {n: {"name": ("<module>", "weigh")[n], "filename": "a.py", "line": 1} for n in (0, 1)}
    ends = [(n, *end) for end in (("B", 0), ("E", 4_000_000)) for n in where]
    events = [{"tid": n, "ph": ph, "ts": at, **where[n], "args": where[n]} for n, ph, at in ends]
    os.write(seen._output, json.dumps(events).encode())
    seen._began = os.fstat(seen._output).st_mtime - 4
    for at, alive in ((0.5, (0, 1)), (1.5, (0,)), (2.5, (0,))):
        seen._looks.append((at, os.memfd_create("dump"), None))
        os.write(seen._looks[-1][1], json.dumps([{"frames": [where[n]]} for n in alive]).encode())
    seen._add_stacks(found)
    threads = [[round(at) for at, n in each if found["stacks"][n]] for each in found["threads"]]
    assert threads == [[0, 500, 1500, 2500], [0, 500]]


def test_a_refused_look_is_said_in_short_with_what_to_do() -> None:
    said = (
        b"Error: Failed\n\nCaused by:\n    1: Permission denied\n\nStack backtrace:\n   0: main\n"
    )
    assert sampling.reason(said) == "Permission denied"
    why = sampling.reason(b"Error: Permission Denied: Try running again as 'sudo !!'\n")
    (note,) = problems(Stacks(processes=[ProcessStacks(task="ps:0", pid=1, error=why)]))
    assert note.startswith("ps:0: Permission Denied; the host refuses that one process reads")


def test_gpus_are_shown_with_what_slows_them() -> None:
    seen = [not_none(recorded(gpus=g).recording) for g in (gpu(900)[:1], gpu(900), gpu(0)[1:])]
    one, both, other = [gpus_text("ps:0", gpus.read(each)) for each in seen]
    words = "ps:0: 35% busy, 2.1 GB of 17.2 GB, 900 of 1980 MHz (slowed by: heat), 84 °C"
    assert (one, other) == (f"GPU 0 of {words}", "GPU 1 of ps:0: 0 MHz")
    assert both.startswith("2 GPUs of ps:0: 35% busy, 2.1 GB of 17.2 GB, 900 ")


def test_no_task_is_named_where_none_is_slower_than_another_by_a_tenth() -> None:
    assert slow((STEP, 0.5, 1.0), (STEP, 0.5, 0.0)) is None
    assert slow((STEP, 0.58, 1.0), (STEP, 0.42, 0.0)) is None
    # Two that are slow: without one, the job waits for the other.
    slow_ones = [profiled((STEP, 1.0, 1.0), task=f"worker:{n}") for n in range(2)]
    fast = profiled((STEP, 0.5, 1.0), (STEP, 0.5, 0.0), task="worker:2")
    assert straggler([*slow_ones, fast], {"worker:0", "worker:1", "worker:2"}, {}) is None
    by_chance = [profiled((STEP, 1.0, 0.4), wait=n / 100, task=f"worker:{n}") for n in (47, 60)]
    assert straggler(by_chance, {"worker:47", "worker:60"}, {}) is None
    more = [profiled((STEP, 1.0, n / 100), wait=0.5, task=f"worker:{n}") for n in (36, 50)]
    assert straggler(more, {"worker:36", "worker:50"}, {}) is not None
    # Workers of parameter servers wait for nobody.
    assert straggler([slow_ones[0], fast], set(), {}) is None
    # Two whose input is slow: the other one's is late when this one's is not.
    slow_inputs = [
        profiled((LOADS, n / 10, 0.1), (STEP, 1 - n / 10, 0.0), task=f"worker:{n}") for n in (4, 6)
    ]
    assert straggler(slow_inputs, {"worker:4", "worker:6"}, {}) is None
    # The one that is not shown may be the slowest.
    assert straggler([slow_ones[0], fast], {"worker:0", "worker:1", "worker:2"}, {}) is None


def test_several_that_are_slow_are_named_together() -> None:
    shares = (1.0, 0.3, 0.25, 0.9, 0.3, 0.3)
    each_one = [((STEP, own, 1.0), (STEP, 1 - own, 0.0)) for own in shares]
    look = [profiled(*parts, task=f"worker:{n}") for n, parts in enumerate(each_one)]
    members = {each.task for each in look}
    found = not_none(straggler(look, members, {}))
    assert (found.task, found.also) == ("worker:0", ("worker:3",))
    assert found.gain == pytest.approx(0.7, abs=0.02)
    shown = [*map(str, profile_view(look, found, Stacks(), 80, {}, has_program=True).renderables)]
    assert any("the others wait for worker:0, worker:3: without that" in line for line in shown)
    saves = Reason(obstacle=Obstacle.MORE_OF_A_KIND, amount=0.4, kind=Kind.SAVING)
    for_now = profile_view(
        look, replace(found, reasons=(saves,)), Stacks(), 80, {}, has_program=True
    )
    suspended = replace(recorded((STEP, 1.0, 0.0)), error="it is suspended; kill -CONT 7")
    told = Stacks(processes=[suspended])
    stopped = profile_view(look, replace(found, also=()), told, 80, {}, has_program=True)
    assert "wait for worker:0: it is suspended" in str([*map(str, stopped.renderables)])
    assert any("what was seen here" in str(line) for line in for_now.renderables), "it may be rare"
    table, *_ = profile_view(look[2::-1], None, Stacks(), 80, {}, has_program=True).renderables
    heads = [str(each.header) for each in table.columns]  # type: ignore[union-attr]
    assert heads[1:4] == ["worker:0", "worker:1", "worker:2"]
    assert advise_by_profiles([look] * 3, members, {}, {}) is None


def test_a_task_that_starts_is_not_said_to_make_the_job_slow() -> None:
    imports = (("_find_and_load", "<frozen importlib._bootstrap>", 7), MODULE)
    waits, steps = (STEP, 1.0, 0.001), profiled((STEP, 0.5, 1.0), (STEP, 0.5, 0.0))
    for first, second in ((profiled(waits), (STEP, 1.0, 1.0)), (steps, (imports, 1.0, 1.0))):
        look = [first, profiled(second, task="worker:1")]
        assert straggler(look, {"worker:0", "worker:1"}, {}, has_begun=False) is None
        assert straggler(look, {"worker:0", "worker:1"}, {}) is not None


def test_many_tasks_are_ten_lines_of_80_columns() -> None:
    cores = [1.0 if n == 17 else 0.3 for n in range(64)]
    processes = [recorded((STEP, 1.0, each), task=f"worker:{n}") for n, each in enumerate(cores)]
    profiles = [not_none(profile(each)) for each in processes]
    found = straggler(profiles, {each.task for each in profiles}, {})
    view = profile_view(profiles, found, Stacks(processes=processes), 80, {}, has_program=True)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(view)
    lines = capture.get().splitlines()
    assert len(lines) <= 10
    assert lines[0].split() == ["worker:17", "worker", "(63)", "line"]
    assert any("wait for worker:17" in line for line in lines)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 10**400, 1e300, -1.0, "1", None])
def test_a_thread_of_input_is_drawn_but_no_damaged_profile(weight: Any, tmp_path: Path) -> None:
    process = recorded((STEP, 1.0, 0.0), others=((GENERATOR, 0.8), ((), 0.2)))
    saved = speedscope([not_none(profile(process))], "job")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(saved))
    assert [each.task for each in read_flames(path)] == ["worker:0", "worker:0 thread 1 (input)"]
    for each in saved["profiles"]:
        each["weights"][0] = weight
    path.write_text(json.dumps(saved))
    assert read_flames(path) == []


# Where tasks stand --------------------------------------------------------------------------------


LIBRARY = "/opt/venv/lib/python3.11/site-packages/tensorflow/python/ops.py"


def process(task: str, *frames: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    main = {"name": "MainThread", "is_main": True, "holds_gil": False}
    threads = [{**main, "frames": [list(frame) for frame in frames]}] if frames else []
    return {"task": task, "pid": 7, "threads": threads, **more}


WAITS = (("all_reduce", LIBRARY, 9), ("train", "/home/u/train.py", 41), ("<module>", "/t.py", 50))
LOADING = (("load", "/home/u/data.py", 12), ("<module>", "/t.py", 50))


def test_the_task_that_stands_elsewhere_comes_first() -> None:
    tasks = [process(f"worker:{n}", *(LOADING if n == 5 else WAITS)) for n in range(8)]
    odd = not_none(stacks.odd_one(stacks.places(stacks.decode(json.dumps(tasks)))))
    assert odd.tasks == ("worker:5",)
    assert odd.frames[0] == "load (data.py:12)"
    logs = {"name": "", "is_main": False, "holds_gil": False, "frames": [["poll", "/log.py", 7]]}
    tasks = [process(f"worker:{n}", *WAITS) for n in range(2)]
    for task in tasks:
        task["threads"].append(logs)
    tasks[1]["threads"].append({**logs, "frames": [list(frame) for frame in LOADING]})
    first, other = found = stacks.places(stacks.decode(json.dumps(tasks)))
    assert (first.tasks, first.place) == (("worker:1",), "load, data.py:12")
    assert other.place == first.main == "all_reduce, called from train, train.py:41"
    assert stacks.odd_one(found) == first
    # The first worker waits at the line of the others, called from another one.
    tasks = [process(f"worker:{n}", WAITS[0], *WAITS[(n == 0) + 1 :]) for n in (3, 1, 0)]
    entries = stacks.fold(stacks.decode(json.dumps([*tasks, process("worker:2", *LOADING)])))
    assert [each.tasks[0] for each in entries] == ["worker:2", "worker:0", "worker:1"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[[]]", "[" * 100_000, "x" * (3 << 20), json.dumps([{}]),
        json.dumps([process("worker:0", ("f", "x.py", 1))] * 5000),
        json.dumps([process("worker:0", ("f", "x.py", "1"))]),  # type: ignore[arg-type]
        json.dumps([process(7, ("f", "x.py", 1))]),  # type: ignore[arg-type]
        json.dumps([{**process("worker:0"), "threads": "many"}]),
        *(json.dumps([{"task": "worker:0", "pid": 7, "recording": {**RECORDING, **damage}}])
          for damage in ({"threads": [[[0, 9]]]}, {"readings": [[0, 1, float("nan")]]},
                         {"nice": None}, {"stacks": [[9]]})),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_what_a_host_may_not_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words do not matter
        stacks.decode(text)


class Collected:
    def __init__(self, program: Path) -> None:
        self.ordered: list[tuple[str, Order]] = []
        self.answers: list[Stacks] = []
        self.loop = SimulatedLoop()
        names = {"worker:0": "h0", "worker:1": "h1"}
        tasks = {task: replace(TASK, name=task, host=host) for task, host in names.items()}
        hosts = {each: HostState(name=each, agent_pid=1, hostname=each) for each in ("h0", "h1")}
        state = replace(JobState(), tasks=ChunkedMap(tasks), hosts=hosts)
        pool = SimpleNamespace(order=lambda *order: self.ordered.append(order))
        parts = {"loop": self.loop, "state": state, "hosts": pool}
        job: Any = SimpleNamespace(**parts, has_own_logs=lambda _: True)
        self.collector = StackCollector(job)
        self.collector.ask(set(tasks), str(program), self.answers.append)

    def answer(self, host: str, text: str, number: int = 1) -> None:
        self.collector.receive(host, StacksDumped(number, text))


TASK = TaskState(name="", role=Role.WORKER, index=0, host="", phase=TaskPhase.RUNNING)
GOOD = json.dumps([process("worker:0", *LOADING, error="it is suspended; kill -CONT 7")])


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    program = tmp_path / "py-spy"
    program.write_bytes(os.urandom(200_000))
    return Collected(program)


@pytest.mark.parametrize(
    ("answers", "tasks", "why"),
    [
        ((GOOD, ('[{"task": 7}]', 1)), ["worker:0"], "its answer cannot be read: "),
        (("[]", ("", 1)), [], "py-spy could not be run there"),  # the tasks of h0 have ended
        ((GOOD, (GOOD, 2)), ["worker:0"], "it has not answered in time"),  # but something else
    ],
)
def test_a_host_without_an_answer_is_named(
    answers: Any, tasks: list[str], why: str, collected: Collected
) -> None:
    collected.answer("h0", answers[0])
    collected.answer("h0", answers[0])
    assert not collected.answers
    collected.answer("h1", *answers[1])
    collected.loop.run(60.0)
    (found,) = collected.answers
    assert [each.task for each in found.processes] == tasks
    assert {each.error for each in found.processes} <= {"it is suspended; kill -CONT 7 on h0"}
    assert [(host, each[: len(why)]) for host, each in found.silent.items()] == [("h1", why)]


def test_a_host_that_lacks_the_program_is_sent_it(collected: Collected) -> None:
    collected.collector.receive("h1", ProgramRequested("digest"))
    parts = [order for host, order in collected.ordered if isinstance(order, ProgramData)]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(zlib.decompress(b"".join(part.data for part in parts))) == 200_000
