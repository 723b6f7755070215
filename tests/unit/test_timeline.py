"""What each task did from when to when, and where a job's time went, by the events of a record."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.histories import MWM, running
from harness.logs import T0, append
from harness.parts.job import Activity, AttemptTiming, Job, Phase, Place, Span, Timing, events
from harness.parts.lifecycle import TaskPhase, TaskState, Used
from harness.parts.logs import TaskLog
from harness.parts.protocol import Cause, Code
from harness.parts.records import EventLog, JobFolder, Sample
from harness.parts.report import Measure, outliers, panels
from harness.parts.spec import Timeouts
from harness.parts.top import Role, replace

A, B = "worker:0", "worker:1"
RECORD: list[Any] = running(MWM, A, B, places={A: "gpu0", B: "gpu1"}).history
CREATED, READY, _, _, PLANNED = RECORD[:5]


def created(
    at: float, kind: type[events.JobCreated] = events.JobCreated, stall: float | None = None
) -> events.JobCreated:
    return kind(**{**vars(CREATED), "at": at, "timeouts": Timeouts(stall=stall)})


def planned(at: float) -> Any:
    return replace(PLANNED, at=at)


def ready(at: float, host: str) -> Any:
    return replace(READY, at=at, host=host)


def started(at: float, task: str, attempt: int = 0) -> events.TaskStarted:
    return events.TaskStarted(at=at, task=task, attempt=attempt, pid=1)


def first_step(at: float, task: str, attempt: int = 0) -> events.FirstStep:
    return events.FirstStep(at=at, task=task, attempt=attempt)


def ended(at: float, task: str, attempt: int = 0) -> list[events.Event]:
    exited = events.TaskExited(at=at, task=task, attempt=attempt, code=1)
    return [exited, events.TaskEnded(at=at + 1, task=task, attempt=attempt)]


def restart(at: float, cause: Cause, *tasks: str) -> events.RestartPlanned:
    return events.RestartPlanned(
        at=at, number=1, tasks=tasks or (A, B), cause=cause, delay=1.0, is_free=False, left=1
    )


def shown(
    history: list[events.Event], task: str, printed: dict[tuple[str, int], float] | None = None
) -> list[tuple[Activity, float, float]]:
    found = Timing(history, printed or {}, until=1000.0).spans
    return [(each.activity, each.start, each.end) for each in found if each.task == task]


def test_a_task_waits_starts_trains_and_ends_in_each_attempt() -> None:
    history = [
        created(0.0), planned(2.0), started(3.0, A), started(4.0, B), first_step(9.0, A),
        *ended(20.0, A), restart(21.5, Cause(Code.TASK_EXITED)), *ended(22.0, B),
        started(25.0, A, 1), first_step(30.0, A, 1), *ended(40.0, A, 1),
        replace(planned(50.0), kept=(A,)),
    ]  # fmt: skip
    assert shown(history, A) == [
        *((Activity.WAITING, 0.0, 3.0), (Activity.STARTING, 3.0, 9.0)),
        *((Activity.TRAINING, 9.0, 20.0), (Activity.ENDING, 20.0, 21.0)),
        *((Activity.WAITING, 21.5, 25.0), (Activity.STARTING, 25.0, 30.0)),
        *((Activity.TRAINING, 30.0, 40.0), (Activity.ENDING, 40.0, 41.0)),
    ]
    assert shown(history, B)[1:] == [
        *((Activity.STARTING, 4.0, 22.0), (Activity.ENDING, 22.0, 23.0)),
        (Activity.WAITING, 23.0, 1000.0),
    ]


def test_a_task_that_tells_no_steps_runs_from_its_first_output_on() -> None:
    history = [created(0.0), planned(0.0), started(0.0, A), *ended(50.0, A)]
    both = [(Activity.STARTING, 0.0, 7.0), (Activity.RUNNING, 7.0, 50.0)]
    assert shown(history, A, {(A, 0): 7.0})[1:3] == both
    assert shown(history, A)[1] == (Activity.STARTING, 0.0, 50.0)


def test_the_first_output_is_that_of_its_attempt(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.logs.mkdir()
    with contextlib.closing(EventLog(str(folder.events_file))) as record:
        again = started(T0 + 6.3, A, 1)._replace(log_start=35)
        for each in (started(T0, A), *ended(T0 + 5, A), again):
            record.append(each)
    append(TaskLog.of(folder, A), b"--- attempt 1, 12:00: restarted ---", 6.2)
    append(TaskLog.of(folder, A), b"of attempt 1\n", 21.0)
    assert Job(folder).first_outputs == {(A, 1): T0 + 21.0}


def test_saving_stalls_and_lost_links_are_beside_the_rest() -> None:
    cause = Cause(Code.SSH_TIMED_OUT)
    history = [
        created(0.0, stall=6.0), planned(0.0), started(0.0, A), started(0.0, B),
        first_step(1.0, A), first_step(1.0, B), events.SavingStarted(at=5.0, task=A, attempt=0),
        events.SavingEnded(at=8.0, task=A, attempt=0),
        events.LinkLost(at=9.0, host="gpu0", cause=cause),
        events.LinkRestored(at=12.0, host="gpu0"),
        events.TimedOut(at=20.0, timer=events.Timer(events.TimerKind.STALL)),
        *ended(21.0, A), *ended(21.0, B),
    ]  # fmt: skip
    assert {*shown(history, A)} >= {
        *((Activity.SAVING, 5.0, 8.0), (Activity.LINK_LOST, 9.0, 12.0)),
        *((Activity.STALLED, 14.0, 22.0), (Activity.TRAINING, 1.0, 21.0)),
    }
    others = {activity for activity, _, _ in shown(history, B)}
    assert others & {Activity.SAVING, Activity.LINK_LOST, Activity.STALLED} == {Activity.STALLED}


def test_a_lost_host_ends_what_its_tasks_did() -> None:
    cause = Cause(Code.SSH_TIMED_OUT)
    history: list[events.Event] = [
        created(0.0), planned(0.0), started(0.0, A), started(0.0, B),
        events.LinkLost(at=5.0, host="gpu0", cause=cause),
        events.HostLost(at=9.0, host="gpu0", cause=cause),
    ]  # fmt: skip
    assert shown(history, A)[-2:] == [(Activity.STARTING, 0.0, 9.0), (Activity.LINK_LOST, 5.0, 9.0)]
    assert shown(history, B)[-1] == (Activity.STARTING, 0.0, 1000.0)


def test_a_resume_ends_what_the_lost_attempts_did() -> None:
    resumed = [created(50.0, events.JobResumed), planned(52.0), started(55.0, A, 1)]
    assert shown([created(0.0), planned(0.0), started(1.0, A), *resumed], A) == [
        *((Activity.WAITING, 0.0, 1.0), (Activity.STARTING, 1.0, 50.0)),
        *((Activity.WAITING, 50.0, 55.0), (Activity.STARTING, 55.0, 1000.0)),
    ]


def task(name: str, *, step: int = 100, memory: int = 0, cpu: float = 50.0) -> TaskState:
    return TaskState(
        name=name, role=Role.WORKER, index=int(name[-1]), host="gpu", reported={"STEP": str(step)},
        used=Used(cpu_seconds=cpu, peak_memory_bytes=memory),
    )  # fmt: skip


NAMES = [f"worker:{index}" for index in range(4)]


def of_four(late: str = "", first: float = 30.0) -> list[Span]:
    history: list[events.Event] = [created(-400.0), planned(-400.0)]  # of two of them
    for name in NAMES:
        begin = first_step(first if name == late else 3.0, name)
        history += [started(0.0, name), begin, *ended(100.0, name)]
    return Timing(history, {}, until=101.0).spans


def test_the_slowest_and_the_odd_tasks_are_found() -> None:
    assert outliers(map(task, NAMES), of_four(NAMES[0], 9.0), []) == []
    tasks = [
        task(NAMES[0]), task(NAMES[1], memory=900_000_000), task(NAMES[2], cpu=9.0),
        task(NAMES[3], step=40),
    ]  # fmt: skip
    found = outliers(tasks, of_four(late=NAMES[0]), [])
    assert {(each.task, each.measure, each.is_slow) for each in found} == {
        (NAMES[0], Measure.START, True), (NAMES[3], Measure.STEPS, True),
        (NAMES[1], Measure.MEMORY, False), (NAMES[2], Measure.LOAD, False),
    }  # fmt: skip


def test_of_two_tasks_one_is_behind_the_other_if_not_for_two_reports_only() -> None:
    (found,) = outliers([task(NAMES[0]), task(NAMES[1], step=40, memory=10**9)], [], [])
    assert (found.task, found.value, found.usual) == (NAMES[1], 40.0, 100.0)
    running: Any = {"phase": TaskPhase.RUNNING, "first_step": {"STEP": "100"}}
    for steps, behind in (((300, 100), []), ((600, 200), [B]), ((380, 210), [B])):
        both = [replace(task(n, step=s), **running) for n, s in zip((A, B), steps, strict=True)]
        assert [each.task for each in outliers(both, [], [])] == behind


def test_the_slowest_is_the_one_that_has_done_least_in_all_epochs() -> None:
    first, second = {"STEP": "95", "EPOCH": "1"}, {"STEP": "8", "EPOCH": "2"}
    for total, found in (({"STEPS": "100"}, [(B, 95, 108)]), ({}, [])):
        tasks = [replace(task(n), reported={**r, **total}) for n, r in ((A, second), (B, first))]
        assert [(each.task, each.value, each.usual) for each in outliers(tasks, [], [])] == found


def test_the_task_that_stood_elsewhere_is_odd() -> None:
    others = Place(tasks=(A, "worker:2"), place="all_reduce, train.py:4")
    places = (Place(tasks=(B,), place="load, data.py:12"), others)
    timed_out = events.TimedOut(at=1.0, timer=events.Timer(events.TimerKind.STALL), places=places)
    (found,) = outliers([], [], [timed_out])
    assert (found.task, found.measure, found.place) == (B, None, "load, data.py:12")


def sample(at: float, attempt: int = 0, **told: float) -> Sample:
    return Sample(
        at=at, attempt=attempt, cpu_seconds=2 * (at % 100), memory_bytes=5, peak_memory_bytes=5,
        processes=1, read_bytes=0, written_bytes=0, progress=told,
    )  # fmt: skip


def test_panels_have_what_was_told_and_used() -> None:
    samples = {
        A: [sample(1.0, STEP=1.0, MINE=7.0, LOSS=0.5), sample(3.0, STEP=5.0, MINE=8.0, LOSS=0.4)],
        B: [sample(1.0), *(sample(at, attempt=1) for at in (101.0, 103.0, 107.0))],
    }
    found = {panel.title: panel.curves for panel in panels(samples, {(A, 0): 0.0, (B, 1): 100.0})}
    titles = ["Loss", "Mine", "Steps", "Processor, % of a core", "Resident memory (RSS)"]
    assert list(found) == titles
    assert found["Loss"] == {A: [(1.0, 0.5), (3.0, 0.4)]}
    assert found["Processor, % of a core"][A] == [(1.0, 200.0), (3.0, 200.0)]
    interrupted, *loads = found["Processor, % of a core"][B]
    assert math.isnan(interrupted[1])
    assert loads == [(101.0, 200.0), (103.0, 200.0), (107.0, 200.0)]
    times = [at for at, value in found["Resident memory (RSS)"][B] if not math.isnan(value)]
    assert times == [1.0, 101.0, 103.0, 107.0]


# Where the time of a job went ---------------------------------------------------------------


def of_both(kind: Callable[..., events.Event], *times: float, **fields: Any) -> list[events.Event]:
    return [kind(at=at, task=task, **fields) for task, at in zip((A, B), times, strict=True)]


def attempt(number: int, begin: float) -> list[events.Event]:
    return [
        *of_both(events.TaskStarted, begin + 1, begin + 1.5, attempt=number, pid=1),
        *of_both(events.FirstStep, begin + 9, begin + 8, attempt=number),
        *of_both(events.TaskReported, begin + 31, begin + 31, values={}, step_at=begin + 30),
        *of_both(events.TaskExited, begin + 31, begin + 33, attempt=number, code=1),
    ]


HISTORY = [
    created(100.0), ready(101.0, "gpu1"), ready(103.0, "gpu0"),
    events.Synced(at=104.0, host="gpu0", files=1, size=1), planned(105.0), *attempt(0, 105.0),
    restart(139.0, Cause(Code.HOST_LOST, host="gpu1")), ready(141.0, "gpu1"), *attempt(1, 142.0),
]  # fmt: skip


def phases(found: AttemptTiming) -> dict[str, tuple[float, float, str]]:
    return {each.phase.words: (each.at, each.seconds, each.last or "") for each in found.reached}


def test_each_phase_has_its_time_its_length_and_who_was_last() -> None:
    printed = {(A, 0): 107.0, (B, 0): 107.5, (A, 1): 144.0}
    first, second = Timing(HISTORY, printed, until=999.0).attempts
    assert phases(first) == {
        "accepted": (100.0, 0.0, ""), "hosts reached": (103.0, 3.0, "gpu0"),
        "files sent": (104.0, 1.0, ""), "ports held": (105.0, 1.0, ""),
        "program executed": (106.5, 1.5, "worker:1"), "first output": (107.5, 1.0, "worker:1"),
        "first step": (114.0, 6.5, "worker:0"), "last step": (135.0, 21.0, "worker:0"),
        "end": (138.0, 3.0, "worker:1"),
    }  # fmt: skip
    assert first.reached[1].spread == 2.0
    assert (first.tasks, first.cause, first.resumed) == ((A, B), None, False)
    assert phases(second) == {
        "accepted": (139.0, 0.0, ""), "hosts reached": (141.0, 2.0, ""),
        "program executed": (143.5, 2.5, "worker:1"), "first output": (144.0, 0.5, ""),
        "first step": (151.0, 7.0, "worker:0"), "last step": (172.0, 21.0, "worker:0"),
        "end": (175.0, 3.0, "worker:1"),
    }  # fmt: skip
    assert getattr(second.cause, "host", "") == "gpu1"
    resumed = [*HISTORY, created(200.0, events.JobResumed), *attempt(2, 205.0)]
    *_, third = Timing(resumed, {}, until=999.0).attempts
    assert (third.tasks, third.resumed, third.at(Phase.END)) == ((A, B), True, 238.0)


def test_a_task_that_restarts_alone_leaves_the_others_in_their_attempt() -> None:
    history = [
        created(100.0), ready(101.0, "gpu0"), planned(102.0),
        *of_both(events.TaskStarted, 103.0, 103.0, attempt=0, pid=1),
        restart(120.0, Cause(Code.TASK_NOT_STARTED), B),
        events.TaskStarted(at=121.0, task="worker:1", attempt=1, pid=2),
        *of_both(events.TaskExited, 130.0, 131.0, attempt=1, code=0),
    ]  # fmt: skip
    first, second = Timing(history, {}, until=999.0).attempts
    assert (first.at(Phase.END), second.at(Phase.END), second.tasks) == (130.0, 131.0, (B,))


@pytest.mark.parametrize("kind", [events.JobCreated, events.JobResumed])
def test_a_queued_job_is_accepted_once_its_supervisor_begins(kind: type[events.JobCreated]) -> None:
    about: Any = {"job_id": "job-1", "name": "job", "strategy": "default", "spec_file": "s"}
    queued = events.JobQueued(at=50.0, batch_id="7", **about)
    history = [queued, created(100.0, kind), ready(101.0, "gpu0")]
    (found,) = Timing(history, {}, until=999.0).attempts
    assert phases(found)["accepted"] == (100.0, 50.0, "")
    assert found.resumed is (kind is events.JobResumed)
