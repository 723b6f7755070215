"""Restarts as the pure lifecycle decides them: who starts again, when, and how often."""

from typing import Any

import pytest

from harness.histories import backoff_over, because, restarts_planned, running
from harness.parts.job import events
from harness.parts.lifecycle import JOB, SIGKILL, SetTimer, may_recur
from harness.parts.protocol import Cause, Code
from harness.parts.settings import RestartSpec
from harness.parts.verdict import Kind, Verdict
from harness.parts.words import cause_text
from harness.scenarios import play, scenarios, start_again


@scenarios("restarts.txt")
def test_what_follows(scenario: list[str]) -> None:
    play(scenario)


def test_free_restarts_are_at_most_20_in_a_row() -> None:
    job = play(["mwm worker | max=1"])
    for _ in range(20):
        job.exited("worker:0", 143, lived=61.0)
        start_again(job, ["worker:0"])
    assert all(each.is_free for each in restarts_planned(job))
    job.exited("worker:0", 143, lived=61.0)
    assert not restarts_planned(job)[-1].is_free
    start_again(job, ["worker:0"])
    job.exited("worker:0", 143, lived=61.0)
    assert restarts_planned(job)[-1].is_free, "the row was broken"
    own = Cause(Code.PREEMPTED, task="worker:0", path="t.sh:2: trap 'kill 0' EXIT")
    job(events.VerdictReached, verdict=Verdict(kind=Kind.PREEMPTED, cause=own), before_restart=True)
    start_again(job, ["worker:0"])
    job.exited("worker:0", 143, lived=61.0)
    assert job.outcome is not None, "the script sends the signal itself: it counts"


def test_progress_counts_although_a_failure_before_it_is_restarted_later() -> None:
    job = play(["ps chief worker:2 ps | max=9", "worker:0 gone 1", "worker:1 reports STEP=7",
                "worker:1 gone 1", "timer restart:2 ->+ start worker:1 #1",
                "timer restart:1 ->+ start worker:0 #1", "worker:0 worker:1 start",
                "worker:0 gone 1"])  # fmt: skip
    assert not may_recur(job.state)
    job.timed_out("restart:3")
    job.started("worker:0")
    job.gone("worker:0", 1)
    assert may_recur(job.state)


def test_a_failure_recurs_later_and_with_several_hosts_only_after_one_was_left_out() -> None:
    job = play(["ps chief worker:2 ps | max=9", "worker:0 worker:1 gone 1", "= undecided"])
    assert not may_recur(job.state)
    job = play(["mwm worker:2 | max=9 worker:1@h2"])
    for count in range(1, 5):  # host_failures is 3
        job.gone("worker:0", 1)
        assert may_recur(job.state) is (count == 4)
        start_again(job, ["worker:0", "worker:1"])


def test_a_job_that_ended_with_its_supervisor_restarts_nothing() -> None:
    job = play(["mwm worker:2 | max=3", "worker:0 gone 1"])
    assert (job.state.restarts_made, job.state.budget(JOB).counted) == (1, 1), "it is planned"
    job(events.JobEnded, outcome=events.Outcome.stopped(137, because("node failed")))
    assert job.phases() == {"worker:0": "failed", "worker:1": "stopped"}
    assert (job.state.restarts_made, job.state.budget(JOB).counted) == (0, 0)


def delays(job_id: str, **policy: Any) -> list[float]:
    job = running("mirrored", "worker:0", job_id=job_id, restart=RestartSpec(max=8, **policy))
    for _ in range(8):
        job.exited("worker:0", 1)
        start_again(job, ["worker:0"])
    set_ones = [each for each in job.actions if isinstance(each, SetTimer)]
    assert [each.seconds for each in set_ones if "restart" in str(each.timer)] == [
        each.delay for each in restarts_planned(job)
    ]
    return [each.delay for each in restarts_planned(job)]


def test_the_backoff_doubles_up_to_its_bound_less_a_little() -> None:
    found = delays("job-1", backoff=1.0, backoff_max=30.0)
    for delay, full in zip(found, (1, 2, 4, 8, 16, 30, 30, 30), strict=True):
        assert 0.75 * full <= delay <= full
    assert found == delays("job-1", backoff=1.0, backoff_max=30.0), "a replay says the same"
    assert found != delays("job-2", backoff=1.0, backoff_max=30.0), "other jobs wait otherwise"
    assert len(set(found[5:])) == 3
    first, *others = delays("job-1", backoff=0.01)
    assert first < 0.1
    assert set(others) == {1.0}, "the verdict may end the restarts: it comes first"


def test_what_is_told_of_an_attempt_too_late_changes_nothing() -> None:
    job = play(["mwm worker | max=3", "worker:0 gone 1", "again worker:0"])
    before = job.state
    for kind in (events.TaskExited, events.TaskEnded):
        assert job(kind, task="worker:0", attempt=0) == []
    assert job.state == before


def test_each_attempt_knows_what_it_follows_and_nothing_of_the_last() -> None:
    job = play(["mwm worker | max=3", "worker:0 reports STEP=12", "worker:0 gone -9"])
    assert job.state.tasks["worker:0"].signal == SIGKILL, "shown until it starts again"
    (planned,) = restarts_planned(job)
    assert job.state.incidents[1].due_at == pytest.approx(planned.at + planned.delay)
    (start,) = backoff_over(job)
    assert cause_text(start.cause) == "worker:0 was killed by SIGKILL"
    task = job.state.tasks["worker:0"]
    assert (task.signal, task.pid, task.reported, task.started_at) == (None, None, {}, None)
