"""The immutable mapping of a job's tasks, and what an event costs in a job of many tasks."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun import events, lifecycle
from distrun.events import TaskRecord
from distrun.lifecycle.chunked_map import ChunkedMap
from distrun.strategies import Role, Success

KEYS = st.sampled_from([f"k{n}" for n in range(200)])
CHANGES = st.lists(st.dictionaries(KEYS, st.integers(), max_size=150), max_size=6)


@given(changes=CHANGES)
def test_it_is_what_a_dict_would_be_and_old_versions_stay(changes: list[dict[str, int]]) -> None:
    plain: dict[str, int] = {}
    chunked: ChunkedMap[int] = ChunkedMap()
    versions = []
    for change in changes:
        versions.append((dict(plain), chunked))
        plain.update(change)
        chunked = chunked.updated(change)
        assert chunked == plain
        assert list(chunked.items()) == list(plain.items())
        assert list(reversed(chunked)) == list(reversed(plain))
        assert len(chunked) == len(plain)
    for expected, version in versions:
        assert version == expected
    assert chunked.get("other") is None
    with pytest.raises(KeyError):
        chunked["other"]


def planned(count: int) -> lifecycle.JobState:
    created = events.JobCreated(
        at=0.0, job_id="j", name="j", strategy="multi_worker_mirrored", spec_file="",
        success=Success.CHIEF_AND_WORKERS, supervisor_pid=1,
    )  # fmt: skip
    tasks = tuple(
        TaskRecord(name=f"worker:{n}", role=Role.WORKER, index=n, host="h") for n in range(count)
    )
    return lifecycle.replay([created, events.JobPlanned(at=0.0, tasks=tasks)])


def bytes_of_an_event(state: lifecycle.JobState, event: events.Event) -> int:
    """The memory that a transition allocates, freed or not: what it copies."""
    lifecycle.step(state, event)  # caches are filled
    tracemalloc.start()
    try:
        lifecycle.step(state, event)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "event",
    [
        events.TaskStarted(at=1.0, task="worker:7", attempt=0, pid=1),
        events.TaskExited(at=1.0, task="worker:7", attempt=0, code=0),
        events.TaskEnded(at=1.0, task="worker:7", attempt=0),
        events.TaskReported(at=1.0, task="worker:7", values={"STEP": "1"}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_copies_nearly_as_little_in_a_job_of_many_tasks(event: events.Event) -> None:
    few, many = (bytes_of_an_event(planned(count), event) for count in (50, 5000))
    assert many < 2 * few
