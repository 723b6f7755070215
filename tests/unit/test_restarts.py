"""Restarts as the pure lifecycle decides them: who starts again, when, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_text
from distrun.lifecycle import (
    LOST_GRACE,
    MOST_FREE_IN_A_ROW,
    SIGKILL,
    SIGTERM,
    Account,
    Announce,
    CancelTimer,
    Finish,
    JobPhase,
    SetTimer,
    StopTask,
    TaskPhase,
    replay,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import STRATEGIES, Success, Workers

from .histories import (
    GRACE,
    MWM,
    PS,
    Job,
    backoff_over,
    restartable,
    restarts_planned,
    running,
    starts,
    stop_actions,
    timer,
)

W = ("worker:0", "worker:1", "worker:2")
CLUSTER = ("chief:0", "worker:0", "worker:1", "ps:0")
ALONE = [name for name, row in STRATEGIES.items() if not row.tf_config]


def restart_all(job: Job, *names: str) -> None:
    """All that is being stopped ends, the backoff passes, and all start."""
    for name in names:
        if job.state.tasks[name].phase is TaskPhase.STOPPING:
            job.exited(name, signal=SIGTERM)
        if job.state.tasks[name].phase is TaskPhase.EXITED:
            job.ended(name)
    assert {name for name, _ in starts(backoff_over(job))} == set(names)
    job.started(*names)


# Who ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ALONE)
def test_a_task_that_is_alone_starts_again(strategy: str) -> None:
    job = restartable(strategy, "worker:0")
    job.gone("worker:0", 1)
    assert starts(backoff_over(job)) == [("worker:0", 1)]
    job.started("worker:0")
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


@pytest.mark.parametrize("victim", ["chief:0", "worker:1"])
def test_a_mirrored_group_starts_again_together(victim: str) -> None:
    names = ("chief:0", "worker:0", "worker:1", "evaluator:0")
    group = names[:3]
    job = restartable(MWM, *names)
    actions = job.exited(victim, signal=SIGKILL)
    assert actions[:3] == stop_actions(*group, grace=LOST_GRACE), "the evaluator is not stopped"
    assert isinstance(actions[3], SetTimer)
    assert job.phase() is JobPhase.RESTARTING
    assert job.undecided()
    for name in group:
        if name != victim:
            job.exited(name, signal=SIGTERM)
    job.ended(*group[:2])
    assert backoff_over(job) == [], "one of the group has not ended"
    assert starts(job.ended(group[2])) == [(name, 1) for name in group]
    job.started(*group)
    assert job.phase() is JobPhase.RUNNING
    assert job.attempts() == {**dict.fromkeys(group, 1), "evaluator:0": 0}


def test_who_saves_has_longer_when_its_group_is_lost() -> None:
    job = restartable(MWM, *W)
    job(events.SavingStarted, task="worker:0", attempt=0)
    actions = job.exited("worker:1", signal=SIGKILL)
    assert actions[:2] == [
        *stop_actions("worker:0"), *stop_actions("worker:1", grace=LOST_GRACE),
    ]  # fmt: skip


def test_who_has_exited_0_already_starts_again_with_the_group() -> None:
    job = restartable(MWM, *W)
    job.gone("worker:0")
    job.gone("worker:1", 1)
    assert job.phases() == {
        "worker:0": "restarting", "worker:1": "restarting", "worker:2": "stopping",
    }  # fmt: skip
    restart_all(job, *W)
    for name in W[1:]:
        job.gone(name)
        assert job.undecided(), "worker:0's first exit 0 is of an attempt that does not count"
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


@pytest.mark.parametrize("how", [{"code": 1}, {"signal": SIGKILL}, {"code": 0}])
def test_a_parameter_servers_worker_starts_again_alone(how: dict[str, int]) -> None:
    job = restartable(PS, *CLUSTER)
    assert job.exited("worker:1", **how)[:1] == stop_actions("worker:1")
    assert job.phase() is JobPhase.RUNNING
    job.ended("worker:1")
    assert job.phases()["worker:1"] == "restarting"
    assert starts(backoff_over(job)) == [("worker:1", 1)]
    job.started("worker:1")
    assert job.attempts() == {"chief:0": 0, "worker:0": 0, "worker:1": 1, "ps:0": 0}
    job.exited("chief:0")
    assert job.verdict == ("succeeded", 0, "task")


@pytest.mark.parametrize("victim", ["chief:0", "ps:0"])
def test_a_chief_or_ps_takes_the_whole_group_along(victim: str) -> None:
    job = restartable(PS, *CLUSTER, "evaluator:0")
    job.exited(victim, 1)
    restart_all(job, *CLUSTER)
    assert job.attempts() == {**dict.fromkeys(CLUSTER, 1), "evaluator:0": 0}


def test_a_group_restart_takes_in_a_workers_own() -> None:
    job = restartable(PS, *CLUSTER)
    job.gone("worker:1", 1)
    actions = job.exited("ps:0", 1)
    assert actions[0] == CancelTimer(timer("restart:1"))
    assert StopTask("worker:1", SIGTERM, 1.0) not in actions, "nothing of it is left"
    assert job.timed_out("restart:1") == []
    restart_all(job, *CLUSTER)
    assert set(job.attempts().values()) == {1}


def test_who_has_finished_does_not_start_again_with_the_group() -> None:
    job = restartable(PS, *CLUSTER, workers=Workers.INDEPENDENT)
    job.gone("worker:1")
    job.exited("ps:0", 1)
    restart_all(job, "chief:0", "worker:0", "ps:0")
    assert job.attempts() == {"chief:0": 1, "worker:0": 1, "worker:1": 0, "ps:0": 1}
    job.exited("chief:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_an_independent_worker_that_fails_starts_again_alone() -> None:
    names = ("worker:0", "worker:1", "ps:0")
    job = restartable(PS, *names, workers=Workers.INDEPENDENT, success=Success.WORKER_0)
    for name in ("worker:0", "worker:1"):
        job.gone(name, 1)
        assert starts(backoff_over(job)) == [(name, 1)]
        job.started(name)
    assert job.gone("worker:1") == []
    job.exited("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_a_server_that_fails_after_the_chief_has_finished_cannot_be_restarted() -> None:
    """Nobody would give the variables on it their values: the others would wait for ever."""
    job = restartable(PS, *CLUSTER, workers=Workers.INDEPENDENT, success=Success.ALL)
    job.gone("chief:0")
    job.exited("ps:0", 3)
    assert job.verdict == ("failed", 3, "task")
    assert job.words == (
        "ps:0 exited 3; not restarted: chief:0 has finished, and the others cannot start again "
        "without it"
    )


def test_the_addresses_stay() -> None:
    job = restartable(MWM, *W)
    before = {name: task.address for name, task in job.state.tasks.items()}
    job.gone("worker:0", 1)
    restart_all(job, *W)
    assert {name: task.address for name, task in job.state.tasks.items()} == before


# The evaluator ------------------------------------------------------------------------------


def test_an_evaluator_starts_again_alone_and_disturbs_nobody() -> None:
    job = restartable(MWM, "worker:0", "evaluator:0", max=1)
    job.gone("evaluator:0", 1)
    assert job.phase() is JobPhase.RUNNING
    assert starts(backoff_over(job)) == [("evaluator:0", 1)]
    job.started("evaluator:0")
    assert job.state.budgets[Account.JOB].counted == 0, "it has restarts of its own"
    assert job.gone("evaluator:0", 1) == [], "it has none left, and the job continues"
    assert job.phases() == {"worker:0": "running", "evaluator:0": "failed"}
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_an_evaluator_that_waits_to_start_again_does_not_hold_up_success() -> None:
    job = restartable(MWM, "worker:0", "evaluator:0")
    job.gone("evaluator:0", 1)
    assert CancelTimer(timer("restart:1")) in job.exited("worker:0")
    assert isinstance(job.ended("worker:0")[0], Finish)
    assert job.phases()["evaluator:0"] == "failed"


def test_an_evaluator_that_cannot_be_executed_any_more_fails_no_job() -> None:
    job = restartable(MWM, "worker:0", "evaluator:0")
    job.gone("evaluator:0", 1)
    backoff_over(job)
    job(
        events.TaskNotStarted,
        task="evaluator:0",
        attempt=1,
        cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
    )
    assert job.verdict is None
    assert job.phases()["evaluator:0"] == "failed"
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


@pytest.mark.parametrize("by", ["success", "run"])
def test_an_evaluator_that_cannot_be_executed_any_more_does_not_hold_up_an_end(by: str) -> None:
    job = restartable(MWM, "worker:0", "evaluator:0", max=1, run_timeout=60.0)
    job.gone("evaluator:0", 3)
    backoff_over(job)
    if by == "run":
        job.timed_out("run")
    job.gone("worker:0", 0 if by == "success" else 143)
    assert not any(isinstance(action, Finish) for action in job.actions)
    job(
        events.TaskNotStarted,
        task="evaluator:0",
        attempt=1,
        cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
    )
    assert [action for action in job.actions if isinstance(action, Finish)]


def test_where_all_must_succeed_an_evaluator_fails_the_job_once_it_has_no_restart_left() -> None:
    job = restartable(MWM, "worker:0", "evaluator:0", max=1, success=Success.ALL)
    job.gone("evaluator:0", 4)
    assert job.undecided()
    restart_all(job, "evaluator:0")
    job.exited("evaluator:0", 4)
    assert job.verdict == ("failed", 4, "task")


# Policies of roles --------------------------------------------------------------------------


def test_the_policy_of_the_role_that_failed_first_decides_and_its_budget_pays() -> None:
    policies = {"worker": RestartSpec(max=1, on=("130-255",)), "ps": RestartSpec(max=0)}
    job = restartable(PS, *CLUSTER, max=2, role_restarts=policies)
    job.gone("worker:0", signal=SIGKILL)
    assert [each.left for each in restarts_planned(job)] == [0]
    restart_all(job, "worker:0")
    job.exited("chief:0", 1)
    assert restarts_planned(job)[-1].left == 1, "a chief's failure counts against the job's"
    restart_all(job, *CLUSTER)
    job.exited("worker:0", signal=SIGKILL)
    assert job.verdict == ("failed", 137, "task")
    assert job.words == (
        "worker:0 was killed by SIGKILL, after 1 restart; not restarted: "
        "cluster.worker.restart.max allows 1 restart"
    )


def test_a_stall_restarts_by_the_jobs_policy_only() -> None:
    for on, decides in ((("failure",), True), (("130-255",), False)):
        policies = {"worker": RestartSpec(max=0)}
        job = restartable(MWM, *W, on=on, stall_timeout=60.0, role_restarts=policies)
        job.timed_out("stall")
        assert job.undecided() == decides
    assert "a stall is not in restart.on, which is 130-255" in job.words


def test_an_evaluator_that_always_starts_again_stays_down_without_failure_in_the_end() -> None:
    policies = {"evaluator": RestartSpec(max=1, on=("always",))}
    job = restartable(MWM, "worker:0", "evaluator:0", max=0, role_restarts=policies)
    job.gone("evaluator:0")
    restart_all(job, "evaluator:0")
    assert job.gone("evaluator:0") == []
    assert job.phases() == {"worker:0": "running", "evaluator:0": "succeeded"}
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


# How often ----------------------------------------------------------------------------------


def test_without_a_restart_in_the_spec_nothing_starts_again() -> None:
    job = running(MWM, *W)
    assert job.exited("worker:0", 42, lived=3600.0) == stop_actions(*W, grace=GRACE)
    assert job.verdict == ("failed", 42, "task")


def test_the_last_failure_decides_and_the_outcome_says_how_often_it_was_tried() -> None:
    job = restartable(MWM, *W, max=2)
    for code in (3, 4):
        job.exited("worker:1", code)
        restart_all(job, *W)
    job.exited("worker:2", 5)
    assert job.verdict == ("failed", 5, "task")
    assert job.words == (
        "worker:2 exited 5, after 2 restarts; not restarted: restart.max allows 2 restarts"
    )
    assert [each.left for each in restarts_planned(job)] == [1, 0]
    assert not job.state.restarts


def test_what_the_spec_never_restarts_fails_at_once() -> None:
    job = restartable(MWM, *W, never_on=(2, 137))
    job.exited("worker:1", 2)
    assert job.verdict == ("failed", 2, "task")
    assert "restart.never_on" in job.words
    job = restartable(MWM, *W, never_on=(2, 137))
    job.exited("worker:1", signal=SIGKILL)
    assert job.verdict == ("failed", 137, "task"), "128 + the signal is its exit code"


def test_what_the_spec_never_restarts_ends_a_restart_that_its_echo_has_begun() -> None:
    job = restartable(MWM, *W, never_on=(3,))
    job.exited("worker:0", 1)
    assert job.phase() is JobPhase.RESTARTING
    job(events.TaskExited, task="worker:1", attempt=0, code=3, signal=None, was_stopping=False)
    assert job.verdict == ("failed", 3, "task")
    assert job.outcome.task == "worker:1"
    assert "restart.never_on" in job.words
    job.ended("worker:0", "worker:1")
    job.gone("worker:2", signal=SIGTERM)
    assert [action for action in job.actions if isinstance(action, Finish)]


def test_what_is_stopped_for_a_restart_may_exit_as_it_likes() -> None:
    job = restartable(MWM, *W, never_on=(3, 143))
    job.exited("worker:0", 1)
    job(events.TaskExited, task="worker:1", attempt=0, code=3, signal=None, was_stopping=True)
    assert job.undecided()


def test_a_program_that_cannot_be_executed_is_never_tried_again() -> None:
    job = restartable(MWM, *W)
    job.exited("worker:1", 1)
    for name in W:
        if name != "worker:1":
            job.exited(name, signal=SIGTERM)
    job.ended(*W)
    backoff_over(job)
    actions = job(
        events.TaskNotStarted,
        task="worker:0",
        attempt=1,
        cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
    )
    assert actions == stop_actions("worker:1", "worker:2")
    assert job.verdict == ("failed", 69, "distrun")


def test_after_a_spell_of_health_restarts_are_counted_from_0_again() -> None:
    job = restartable(MWM, *W, max=1, reset_after=600.0)
    job.exited("worker:0", 1)
    assert not [each for each in job.actions if each == SetTimer(timer("health:job"), 600.0)]
    restart_all(job, *W)
    assert job.actions[-1] == SetTimer(timer("health:job"), 600.0), "all of it runs again"
    job.timed_out("health:job")
    job.exited("worker:0", 1)
    assert job.undecided()
    restart_all(job, *W)
    actions = job.exited("worker:0", 1)
    assert job.verdict == ("failed", 1, "task")
    assert job.words == (
        "worker:0 exited 1, after 2 restarts; not restarted: restart.max allows 1 restart"
    )
    assert CancelTimer(timer("health:job")) not in actions, "the job is over"


def test_a_failure_ends_a_spell_of_health_before_its_time() -> None:
    job = restartable(MWM, *W, max=2)
    job.exited("worker:0", 1)
    restart_all(job, *W)
    assert CancelTimer(timer("health:job")) in job.exited("worker:0", 1)
    restart_all(job, *W)
    assert job.actions[-1] == SetTimer(timer("health:job"), 600.0)


def test_without_reset_after_they_are_never_forgotten() -> None:
    job = restartable(MWM, *W, reset_after=None)
    job.exited("worker:0", 1)
    restart_all(job, *W)
    assert not [
        each for each in job.actions if isinstance(each, SetTimer) and "health" in str(each.timer)
    ]


# Preemption ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"code": 42}, {"code": 143}, {"signal": SIGTERM}])
def test_after_a_preemption_the_others_have_the_grace_and_it_is_free(how: dict[str, int]) -> None:
    job = restartable(MWM, *W, max=1)
    actions = job.exited("worker:1", **how, lived=60.0)
    assert actions[:3] == stop_actions(*W, grace=GRACE)
    assert job.state.budgets[Account.JOB].counted == 0
    assert (restarts_planned(job)[0].is_free, restarts_planned(job)[0].left) == (True, 1)
    for name in ("worker:0", "worker:2"):
        job.exited(name, 42)
    job.ended(*W)
    backoff_over(job)
    job.started(*W)
    assert job.phase() is JobPhase.RUNNING


def test_an_attempt_that_came_to_a_step_was_worth_it_however_short() -> None:
    job = restartable(MWM, *W, max=1)
    job(events.TaskReported, task="worker:1", values={"STEP": "12"})
    job.exited("worker:1", 42, lived=4.0)
    assert restarts_planned(job)[0].is_free
    restart_all(job, *W)
    job.exited("worker:1", 42, lived=4.0)
    assert not restarts_planned(job)[1].is_free, "the new attempt has stop_actions of no step"


def test_step_0_of_a_bar_is_no_progress() -> None:
    job = restartable(MWM, *W, max=1)
    job(events.TaskReported, task="worker:1", values={"STEP": "0", "STEPS": "500"})
    job.exited("worker:1", 42, lived=4.0)
    assert not restarts_planned(job)[0].is_free


def test_free_restarts_are_at_most_20_in_a_row() -> None:
    job = restartable(MWM, "worker:0", max=1)
    for _ in range(MOST_FREE_IN_A_ROW):
        job.exited("worker:0", 143, lived=61.0)
        restart_all(job, "worker:0")
    assert all(each.is_free for each in restarts_planned(job))
    job.exited("worker:0", 143, lived=61.0)
    assert not restarts_planned(job)[-1].is_free
    restart_all(job, "worker:0")
    job.exited("worker:0", 143, lived=61.0)
    assert restarts_planned(job)[-1].is_free, "the row was broken"


def test_where_there_are_no_restarts_a_preemption_gives_none() -> None:
    job = restartable(MWM, *W, max=0)
    job.exited("worker:1", 42, lived=3600.0)
    assert job.verdict == ("failed", 42, "task")


# The backoff --------------------------------------------------------------------------------


def delays(job_id: str, **policy: Any) -> list[float]:
    job = Job()
    job.created("mirrored", job_id=job_id, restart=RestartSpec(max=8, **policy), start_timeout=None)
    job.planned("worker:0")
    job.started("worker:0")
    for _ in range(8):
        job.exited("worker:0", 1)
        restart_all(job, "worker:0")
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


def test_a_backoff_of_0_is_none() -> None:
    assert set(delays("job-1", backoff=0.0)) == {0.0}


# Ends meanwhile -----------------------------------------------------------------------------


def test_stopped_while_it_waits_to_start_again_it_ends_at_once() -> None:
    job = restartable(MWM, *W)
    job.gone("worker:1", 1)
    for name in ("worker:0", "worker:2"):
        job.gone(name, signal=SIGTERM)
    assert set(job.phases().values()) == {"restarting"}
    assert job.stop() == [CancelTimer(timer("restart:1")), Finish(job.outcome)]
    assert job.phases() == {"worker:0": "stopped", "worker:1": "failed", "worker:2": "stopped"}
    job.finish()
    assert job.verdict == ("stopped", 137, "distrun")


def test_stopped_while_it_stops_to_start_again() -> None:
    job = restartable(MWM, *W)
    job.gone("worker:1", 1)
    actions = job.stop()
    assert actions == [
        CancelTimer(timer("restart:1")),
        *stop_actions("worker:0", "worker:2", grace=GRACE),
    ]
    assert job.timed_out("restart:1") == []
    job.gone("worker:0", signal=SIGTERM)
    assert isinstance(job.gone("worker:2", signal=SIGTERM)[-1], Finish)


def test_the_run_timeout_counts_over_restarts() -> None:
    job = restartable(MWM, *W, run_timeout=60.0)
    job.exited("worker:1", 1)
    restart_all(job, *W)
    assert job.actions.count(SetTimer(timer("run"), 60.0)) == 1
    job.exited("worker:1", 1)
    job.timed_out("run")
    assert job.verdict == ("failed", 75, "distrun")


def test_a_restart_that_does_not_come_up_is_bounded_as_the_start_is() -> None:
    job = restartable(MWM, *W, start_timeout=5.0)
    job.gone("worker:1", 1)
    for name in ("worker:0", "worker:2"):
        job.gone(name, signal=SIGTERM)
    assert backoff_over(job)[:2] == [CancelTimer(timer("start")), SetTimer(timer("start"), 5.0)]
    job.started("worker:0")
    job.timed_out("start")
    assert job.verdict == ("failed", 75, "distrun")
    assert "worker:1, worker:2; not restarted: restarts follow exits of tasks" in job.words


def test_a_failure_before_all_have_started_restarts_too() -> None:
    job = Job()
    job.created(MWM, restart=RestartSpec(), start_timeout=None)
    job.planned(*W)
    job.started("worker:0")
    job.gone("worker:0", 1)
    job.started("worker:1")
    assert job.phases()["worker:1"] == "stopping"
    job.gone("worker:1", signal=SIGTERM)
    job.started("worker:2")
    backoff_over(job)
    assert starts(job.gone("worker:2", signal=SIGTERM)) == [(name, 1) for name in W]


def test_what_is_told_of_an_attempt_too_late_changes_nothing() -> None:
    job = restartable(MWM, "worker:0")
    job.gone("worker:0", 1)
    backoff_over(job)
    job.started("worker:0")
    before = job.state
    for kind in (events.TaskExited, events.TaskEnded):
        assert job(kind, task="worker:0", attempt=0) == []
    assert job.state == before


# What is shown ------------------------------------------------------------------------------


def test_each_attempt_knows_what_it_follows_and_nothing_of_the_last() -> None:
    job = restartable(MWM, "worker:0")
    job(events.TaskReported, task="worker:0", values={"STEP": "12"})
    job.gone("worker:0", signal=SIGKILL)
    assert job.state.tasks["worker:0"].signal == SIGKILL, "shown until it starts again"
    restart = job.state.restarts[1]
    assert restart.due_at == pytest.approx(
        restarts_planned(job)[0].at + restarts_planned(job)[0].delay
    )
    (start,) = backoff_over(job)
    assert cause_text(start.cause) == "worker:0 was killed by SIGKILL"
    task = job.state.tasks["worker:0"]
    assert (task.signal, task.pid, task.reported, task.started_at) == (None, None, {}, None)


def test_the_record_alone_gives_the_same_state() -> None:
    job = restartable(PS, *CLUSTER, "evaluator:0")
    job.gone("worker:1", 1)
    job.gone("evaluator:0", 1)
    job.exited("ps:0", 1)
    for name in ("chief:0", "worker:0"):
        job.gone(name, signal=SIGTERM)
    job.ended("ps:0")
    backoff_over(job)
    assert any(isinstance(each, Announce) for each in job.actions)
    assert replay(
        [each for each in job.history if not isinstance(each, events.RestartPlanned)]
    ) == (replay(job.history))
