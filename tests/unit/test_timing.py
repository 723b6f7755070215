"""Where the time of a job went, from the events of its record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrun import events, timing
from distrun.agent.protocol import Cause, Code
from distrun.cli.timing_view import first_outputs
from distrun.jobstore import JobFolder
from distrun.strategies import Role, Success
from distrun.timing import Phase

WORKERS = ("worker:0", "worker:1")


def created(at: float, kind: type[events.JobCreated] = events.JobCreated) -> events.Event:
    return kind(
        at=at, job_id="job-1", name="job", strategy="multi_worker_mirrored",
        success=Success.CHIEF_AND_WORKERS, spec_file="s.yaml", supervisor_pid=1,
    )  # fmt: skip


def ready(at: float, host: str, behind: float = 0.0) -> events.Event:
    return events.HostReady(
        at=at, host=host, agent_pid=1, hostname=host, python="3.11", cores=2.0, gpus=(),
        behind=behind,
    )  # fmt: skip


def planned(at: float) -> events.Event:
    tasks = tuple(
        events.TaskRecord(name=name, role=Role.WORKER, index=index, host=f"gpu{index}")
        for index, name in enumerate(WORKERS)
    )
    return events.JobPlanned(at=at, tasks=tasks)


def of_both(kind: Callable[..., events.Event], *times: float, **fields: Any) -> list[events.Event]:
    return [kind(at=at, task=task, **fields) for task, at in zip(WORKERS, times, strict=True)]


def attempt(number: int, begin: float) -> list[events.Event]:
    return [
        *of_both(events.TaskStarted, begin + 1, begin + 1.5, attempt=number, pid=1),
        *of_both(events.FirstStep, begin + 9, begin + 8, attempt=number),
        *(
            events.TaskReported(at=begin + 31, task=task, values={}, step_at=begin + 30)
            for task in WORKERS
        ),
        *of_both(events.TaskExited, begin + 31, begin + 33, attempt=number, code=1),
    ]


HISTORY = [
    created(100.0),
    ready(101.0, "gpu1"),
    ready(103.0, "gpu0"),
    events.Synced(at=104.0, host="gpu0", files=1, size=1),
    planned(105.0),
    *attempt(0, 105.0),
    events.RestartPlanned(
        at=139.0,
        number=0,
        tasks=WORKERS,
        cause=Cause(Code.HOST_LOST, host="gpu1"),
        delay=1.0,
        is_free=False,
        left=2,
    ),
    ready(141.0, "gpu1"),
    *attempt(1, 142.0),
]


def phases(found: timing.AttemptTiming) -> dict[str, tuple[float, float, str]]:
    return {each.phase.value: (each.at, each.seconds, each.last) for each in found.reached}


def test_each_phase_has_its_time_its_length_and_who_was_last() -> None:
    first, second = timing.attempts(
        HISTORY, {("worker:0", 0): 107.0, ("worker:1", 0): 107.5, ("worker:0", 1): 144.0}
    )
    assert phases(first) == {
        "accepted": (100.0, 0.0, ""),
        "hosts reached": (103.0, 3.0, "gpu0"),
        "files sent": (104.0, 1.0, ""),
        "ports held": (105.0, 1.0, ""),
        "program executed": (106.5, 1.5, "worker:1"),
        "first output": (107.5, 1.0, "worker:1"),
        "first step": (114.0, 6.5, "worker:0"),
        "last step": (135.0, 21.0, "worker:0"),
        "end": (138.0, 3.0, "worker:1"),
    }
    assert first.reached[1].spread == 2.0
    assert (first.tasks, first.cause, first.resumed) == (WORKERS, None, False)
    assert phases(second) == {
        "accepted": (139.0, 0.0, ""),
        "hosts reached": (141.0, 2.0, ""),
        "program executed": (143.5, 2.5, "worker:1"),
        "first output": (144.0, 0.5, ""),
        "first step": (151.0, 7.0, "worker:0"),
        "last step": (172.0, 21.0, "worker:0"),
        "end": (175.0, 3.0, "worker:1"),
    }
    assert second.cause is not None
    assert second.cause.host == "gpu1"


def test_the_times_of_a_host_are_corrected_by_its_clock() -> None:
    history = [
        created(100.0), ready(101.0, "gpu0"), ready(101.0, "gpu1", behind=50.0), planned(102.0),
        *of_both(events.TaskStarted, 103.0, 54.0, attempt=0, pid=1),
    ]  # fmt: skip
    (found,) = timing.attempts(history)
    assert found.at(Phase.PROGRAM_EXECUTED) == 104.0


def test_a_task_that_restarts_alone_leaves_the_others_in_their_attempt() -> None:
    alone = events.RestartPlanned(
        at=120.0, number=0, tasks=("worker:1",), cause=Cause(Code.TASK_NOT_STARTED), delay=0.0,
        is_free=False, left=2,
    )  # fmt: skip
    history = [
        created(100.0), ready(101.0, "gpu0"), planned(102.0),
        *of_both(events.TaskStarted, 103.0, 103.0, attempt=0, pid=1), alone,
        events.TaskStarted(at=121.0, task="worker:1", attempt=1, pid=2),
        *of_both(events.TaskExited, 130.0, 131.0, attempt=1, code=0),
    ]  # fmt: skip
    first, second = timing.attempts(history)
    assert (first.at(Phase.END), second.at(Phase.END)) == (130.0, 131.0)
    assert second.tasks == ("worker:1",)


@pytest.mark.parametrize("kind", [events.JobCreated, events.JobResumed])
def test_a_job_in_the_queue_is_accepted_once_its_supervisor_begins(
    kind: type[events.JobCreated],
) -> None:
    queued = events.JobQueued(
        at=50.0, job_id="job-1", name="job", strategy="default", spec_file="s", batch_id="7"
    )
    (found,) = timing.attempts([queued, created(100.0, kind), ready(101.0, "gpu0")])
    assert phases(found)["accepted"] == (100.0, 50.0, "")
    assert found.resumed is (kind is events.JobResumed)


def test_a_record_without_its_beginning_has_no_attempts() -> None:
    assert timing.attempts([planned(5.0), *attempt(0, 5.0)]) == []


def test_a_name_that_no_task_can_have_has_no_first_output(tmp_path: Path) -> None:
    odd = [
        events.TaskStarted(at=101.0, task=name, attempt=0, pid=1) for name in ("x" * 5000, "a\0b")
    ]
    assert first_outputs(JobFolder(tmp_path), [created(100.0), *odd]) == {}
