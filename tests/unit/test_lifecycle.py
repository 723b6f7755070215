"""The life of a job: scenarios replayed, also of hosts that are lost for good."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.histories import MWM, because, running
from harness.parts.job import events
from harness.parts.lifecycle import JOB, ChunkedMap, replay
from harness.parts.words import anew_warnings
from harness.scenarios import play, scenarios, verdict_words, verdicts

from .test_verdict_words import raised


@scenarios("lifecycle.txt")
def test_what_follows(scenario: list[str]) -> None:
    play(scenario)


def test_events_after_the_end_change_nothing() -> None:
    job = running(MWM, "worker:0")
    job.gone("worker:0", 3)
    job.finish()
    end = job.state
    assert job.stop() == []
    assert job.timed_out("run") == []
    assert job(events.HostLost, host="localhost", cause=because("late")) == []
    assert job.gone("worker:0", 0) == []
    assert job.state == end


def test_over_resumes_costs_and_changes_add_up_and_nothing_is_forgotten() -> None:
    job = play(["mwm worker:2 | rooms worker:1@h2", "link-lost h2", "lost h2", "timer restart:1",
                "worker:0 reports STEP=3", "worker:0 gone -15", "plan worker:0@h1 worker:1@h3",
                "worker:0 start", "worker:0 first STEP=2", "worker:0 reports STEP=3"])  # fmt: skip
    names = ("job_id", "name", "strategy", "spec_file")
    queued = {name: getattr(job.history[0], name) for name in names}
    job(events.JobQueued, batch_id="7", **queued)
    for change in ("restart.max=1", "restart.max=2"):
        job.resumed(changes=(change,), down=5.0)
        job.planned("worker:0")
        job.started("worker:0")
        attempt, at = job.attempt("worker:0"), float(len(job.history))
        job(events.FirstStep, task="worker:0", attempt=attempt, values={"STEP": "2"})
        job(events.TaskReported, task="worker:0", values={"STEP": "3"}, step_at=at)
    state = job.state
    assert (state.down, state.repeated_steps, len(state.changes)) == (10.0, 4, 2)
    assert state.task_names == ["worker:0", "worker:1"]
    (lost,) = state.replacements
    assert (lost.seconds, lost.repeated_steps, state.budget(JOB).total) == (0.05, 2, 1)
    assert (state.batch_id, state.queued_at is None) == ("7", False)
    assert [each.is_anew for each in state.interruptions] == [False, True, True]
    assert "began at its first step again, 2 times in a row" in str(anew_warnings(state))


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("STEP=50", "STEP=41", 10), ("STEP=50", "STEP=51", 0), ("STEP=50", "STEP=0", 50),
        ("STEP=50", "STEP=70", 0), ("EPOCH=2 STEP=70", "EPOCH=2 STEP=61", 10),
        ("EPOCH=2 STEP=34", "EPOCH=1 STEP=21", None), ("STEP=50", "STEP=41 printed=1", None),
    ],
)  # fmt: skip
def test_what_a_restart_repeats_is_told_once_for_all_its_tasks(
    before: str, after: str, steps: int | None
) -> None:
    job = play(["mwm worker:2 | max=2", f"worker:0 worker:1 reports {before}", "worker:0 gone 1",
                "worker:1 gone -15", "again worker:0 worker:1",
                f"worker:0 worker:1 first {after}"])  # fmt: skip
    (cost,) = job.state.interruptions
    assert (cost.repeated_steps, cost.is_restart, cost.seconds) == (steps, True, 10.0)


@pytest.mark.parametrize("timer", ["restart:x", "health:y"])
def test_a_timer_that_there_is_not_changes_nothing(timer: str) -> None:
    job = running(MWM, "worker:0")
    odd: Any = events.decode({"event": "TimedOut", "at": 9.0, "timer": timer})
    assert replay([*job.history, odd]) == job.state


KEYS = st.sampled_from([f"k{n}" for n in range(200)])


@given(changes=st.lists(st.dictionaries(KEYS, st.integers(), max_size=150), max_size=6))
def test_the_mapping_of_tasks_is_a_dict_with_versions(changes: list[dict[str, int]]) -> None:
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


@pytest.mark.parametrize(("seconds", "kind"), [(0.1, "host_lost"), (3.0, "exception")])
def test_an_exception_of_ones_own_is_the_cause_only_if_earlier(seconds: float, kind: str) -> None:
    job = play(["mwm worker:2 | rooms worker:1@h2", "worker:0 gone 1", f"wait {seconds}",
                "link-lost h2", "lost h2", "timer restart:1",
                "plan worker:0@h1 worker:1@h3"])  # fmt: skip
    found = verdicts(job, worker0=raised("ValueError: short read: 0 of 4 bytes"))
    assert verdict_words(found[-1]).split()[0] == kind
