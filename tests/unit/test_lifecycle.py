"""The life of a job: named histories replayed, and every order of events that can be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distrun import events
from distrun.agent.protocol import KILL_GRACE, Cause, Code
from distrun.errors import HostError, StartTimeoutError
from distrun.lifecycle import (
    SIGKILL,
    SIGTERM,
    Action,
    CancelTimer,
    Finish,
    JobPhase,
    SetTimer,
    StopTask,
    TaskPhase,
    Used,
    highest,
    replay,
    total,
)
from distrun.strategies import Success, Workers
from harness.examples import examples
from harness.values import not_none

from .histories import GRACE, MWM, PS, Job, because, running, stop_actions, timer

W = ("worker:0", "worker:1", "worker:2")
SIGABRT = 6
CLUSTER = ("chief:0", "worker:0", "worker:1", "ps:0")


# multi_worker_mirrored ----------------------------------------------------------------------


def test_it_succeeds_once_all_workers_have_exited_0() -> None:
    job = running(MWM, *W)
    for name in W[:2]:
        assert job.gone(name) == []
    assert job.phase() is JobPhase.RUNNING, "a member that exits 0 leaves the group pending"
    assert job.exited("worker:2") == stop_actions("worker:2"), "what it left behind is ended"
    assert job.verdict == ("succeeded", 0, "task")
    assert job.ended("worker:2") == [Finish(job.outcome)]
    job.finish()
    assert job.phase() is JobPhase.SUCCEEDED
    assert set(job.phases().values()) == {"succeeded"}


def test_a_chief_is_waited_for_as_well() -> None:
    job = running(MWM, "chief:0", "worker:0")
    job.gone("worker:0")
    assert job.undecided()
    job.gone("chief:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_the_first_failure_decides_and_the_rest_is_stopped_promptly() -> None:
    job = running(MWM, *W)
    assert job.exited("worker:1", 3) == stop_actions(*W)
    assert job.verdict == ("failed", 3, "task")
    assert job.outcome.task == "worker:1"
    assert job.words == "worker:1 exited 3"
    decided_at = job.state.decided_at
    job.gone("worker:0", 1)
    job.ended("worker:1")
    assert job.gone("worker:2", signal=SIGKILL) == [Finish(job.outcome)]
    job.finish()
    assert job.state.decided_at == decided_at
    assert job.verdict == ("failed", 3, "task")
    assert job.phases() == {"worker:0": "stopped", "worker:1": "failed", "worker:2": "stopped"}


@pytest.mark.parametrize("number", [SIGKILL, 11, 6, SIGTERM])
def test_a_death_by_signal_is_128_and_its_number(number: int) -> None:
    job = running(MWM, *W)
    job.exited("worker:0", signal=number)
    assert job.verdict == ("failed", 128 + number, "task")


def test_a_failure_that_only_follows_after_others_have_succeeded_still_counts() -> None:
    job = running(MWM, *W)
    job.gone("worker:0")
    job.exited("worker:1", 5)
    assert job.verdict == ("failed", 5, "task")
    assert StopTask("worker:0", SIGTERM, KILL_GRACE) not in job.actions, "it has ended"


# parameter_server ---------------------------------------------------------------------------


def test_the_chiefs_exit_0_is_success_and_servers_are_stopped() -> None:
    job = running(PS, *CLUSTER)
    assert job.exited("chief:0") == stop_actions(*CLUSTER)
    job.gone("worker:0", signal=SIGTERM)
    job.gone("worker:1", 1)
    job.gone("ps:0", signal=SIGKILL)
    assert job.ended("chief:0") == [Finish(job.outcome)]
    job.finish()
    assert job.verdict == ("succeeded", 0, "task")
    assert job.phases() == {
        "chief:0": "succeeded",
        "worker:0": "stopped",
        "worker:1": "stopped",
        "ps:0": "stopped",
    }


@pytest.mark.parametrize("server", ["worker:1", "ps:0"])
def test_a_server_that_exits_0_before_the_chief_has_failed(server: str) -> None:
    job = running(PS, *CLUSTER)
    job.exited(server, 0)
    result, code, origin = not_none(job.verdict)
    assert (result, origin) == ("failed", "distrun")
    assert code != 0
    assert server in job.words


@pytest.mark.parametrize("name", CLUSTER)
def test_any_failure_in_the_cluster_fails_the_job(name: str) -> None:
    job = running(PS, *CLUSTER)
    assert job.exited(name, 7) == stop_actions(*CLUSTER)
    assert job.verdict == ("failed", 7, "task")


# The evaluator ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"code": 1}, {"signal": 11}, {"code": 0}])
def test_an_evaluators_end_never_ends_the_job(how: dict[str, int]) -> None:
    job = running(MWM, "worker:0", "evaluator:0")
    assert job.gone("evaluator:0", **how) == []
    assert job.undecided()
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")
    assert isinstance(job.actions[-1], Finish)


def test_after_success_an_evaluator_has_the_grace_to_end() -> None:
    job = running(MWM, "worker:0", "evaluator:0")
    assert job.exited("worker:0") == [
        *stop_actions("worker:0"),
        SetTimer(timer("evaluator"), GRACE),
    ]
    assert job.ended("worker:0") == []
    assert job.gone("evaluator:0") == [Finish(job.outcome)]
    assert job.phases()["evaluator:0"] == "succeeded"


def test_an_evaluator_that_takes_longer_is_stopped_and_nobody_else_again() -> None:
    job = running(PS, *CLUSTER, "evaluator:0")
    job.exited("chief:0")
    assert job.timed_out("evaluator") == stop_actions("evaluator:0")
    job.gone("evaluator:0", signal=SIGTERM)
    job.ended("chief:0")
    for name in CLUSTER[1:]:
        job.gone(name, signal=SIGTERM)
    job.finish()
    assert job.verdict == ("succeeded", 0, "task")
    assert job.phases()["evaluator:0"] == "stopped"


def test_an_evaluator_killed_meanwhile_is_not_told_again() -> None:
    job = running(MWM, "worker:0", "evaluator:0")
    job.exited("worker:0")
    assert job.stop() == stop_actions("worker:0", "evaluator:0", signal=SIGKILL, grace=0.0)
    assert job.timed_out("evaluator") == []


def test_after_a_failure_an_evaluator_is_stopped_with_the_rest() -> None:
    job = running(MWM, "worker:0", "evaluator:0")
    assert job.exited("worker:0", 1) == stop_actions("worker:0", "evaluator:0")


def test_an_evaluator_still_starting_at_success_is_not_taken_for_stopped() -> None:
    job = Job()
    job.created(MWM)
    job.planned("worker:0", "evaluator:0")
    job.started("worker:0")
    job.exited("worker:0")
    job.started("evaluator:0")
    assert job.phases()["evaluator:0"] == "running"
    job.gone("evaluator:0", 4)
    assert job.phases()["evaluator:0"] == "failed"
    assert job.verdict == ("succeeded", 0, "task")


# `success:` ---------------------------------------------------------------------------------


def test_success_chief_needs_nobody_else() -> None:
    job = running(MWM, "chief:0", "worker:0", success=Success.CHIEF)
    assert job.exited("chief:0") == stop_actions("chief:0", "worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_success_worker0_needs_nobody_else() -> None:
    job = running(MWM, *W, success=Success.WORKER_0)
    job.gone("worker:1")
    assert job.undecided()
    job.exited("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_success_worker0_of_a_parameter_server_makes_its_exit_0_no_failure() -> None:
    job = running(PS, *CLUSTER, success=Success.WORKER_0)
    job.exited("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_success_all_waits_for_servers_and_evaluator() -> None:
    names = (*CLUSTER, "evaluator:0")
    job = running(PS, *names, success=Success.ALL)
    for name in names[:-1]:
        job.gone(name)
        assert job.undecided()
    job.gone("evaluator:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_success_all_does_not_wait_for_servers_that_never_exit() -> None:
    job = running(PS, *CLUSTER, "evaluator:0", success=Success.ALL)
    job.gone("evaluator:0")
    assert job.undecided()
    assert job.exited("chief:0") == stop_actions("chief:0", "worker:0", "worker:1", "ps:0")
    assert job.verdict == ("succeeded", 0, "task")


# Workers that train by themselves -----------------------------------------------------------


def test_an_independent_worker_that_exits_0_has_finished_and_the_chief_decides() -> None:
    job = running(PS, *CLUSTER, workers=Workers.INDEPENDENT)
    assert job.gone("worker:0") == []
    assert job.gone("worker:1") == []
    assert job.undecided()
    assert job.exited("chief:0") == stop_actions("chief:0", "ps:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_without_a_chief_worker_0_decides_and_the_servers_are_stopped() -> None:
    names = ("worker:0", "worker:1", "ps:0")
    job = running(PS, *names, workers=Workers.INDEPENDENT, success=Success.WORKER_0)
    assert job.gone("worker:1") == []
    assert job.exited("worker:0") == stop_actions("worker:0", "ps:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_success_all_of_independent_workers_waits_for_each_but_the_servers() -> None:
    job = running(PS, *CLUSTER, workers=Workers.INDEPENDENT, success=Success.ALL)
    for name in ("chief:0", "worker:1"):
        job.gone(name)
        assert job.undecided()
    assert job.exited("worker:0") == stop_actions("worker:0", "ps:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_a_server_that_exits_0_before_worker_0_has_failed() -> None:
    names = ("worker:0", "worker:1", "ps:0")
    job = running(PS, *names, workers=Workers.INDEPENDENT, success=Success.WORKER_0)
    job.exited("ps:0")
    assert job.verdict == ("failed", 1, "distrun")
    assert job.words == "ps:0 exited 0 before worker:0 had finished"


def test_success_all_cannot_be_once_an_evaluator_has_failed() -> None:
    job = running(MWM, "worker:0", "evaluator:0", success=Success.ALL)
    job.exited("evaluator:0", 4)
    assert job.verdict == ("failed", 4, "task")


# Stopping -----------------------------------------------------------------------------------


def test_stopped_while_preparing() -> None:
    job = Job()
    job.created(MWM)
    assert job.stop() == [Finish(job.outcome)]
    assert job.planned(*W) == [], "a plan that comes too late starts nothing"
    job.finish()
    assert job.phase() is JobPhase.STOPPED
    assert job.verdict == ("stopped", 137, "distrun")


def test_stopped_while_starting() -> None:
    job = Job()
    job.created(MWM)
    job.planned(*W)
    job.started("worker:0")
    assert job.stop() == stop_actions(*W, grace=GRACE)
    job.started("worker:1")
    assert job.phases()["worker:1"] == "stopping", "started after it was stopped"
    job(
        events.TaskNotStarted,
        task="worker:2",
        attempt=0,
        cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
    )
    assert job.state.phase is JobPhase.STOPPING
    job.gone("worker:0", signal=SIGTERM)
    job.gone("worker:1", signal=SIGTERM)
    job.finish()
    assert job.verdict == ("stopped", 137, "distrun")


def test_stopped_while_running_its_tasks_may_exit_as_they_like() -> None:
    job = running(MWM, *W)
    assert job.stop() == stop_actions(*W, grace=GRACE)
    job.gone("worker:0", 0)
    job.gone("worker:1", 9)
    job.gone("worker:2", signal=SIGTERM)
    job.finish()
    assert job.phases() == {"worker:0": "succeeded", "worker:1": "stopped", "worker:2": "stopped"}
    assert job.verdict == ("stopped", 137, "distrun")


def test_asked_twice_it_stops_at_once_and_a_third_time_does_nothing() -> None:
    job = running(MWM, *W)
    job.stop()
    job.gone("worker:0")
    assert job.stop() == stop_actions("worker:1", "worker:2", signal=SIGKILL, grace=0.0)
    assert job.stop() == []


def test_asked_while_it_fails_it_stops_at_once_and_has_failed() -> None:
    job = running(MWM, *W)
    job.gone("worker:0", 3)
    assert job.stop() == stop_actions("worker:1", "worker:2", signal=SIGKILL, grace=0.0)
    assert job.verdict == ("failed", 3, "task")


def test_it_is_stopped_by_the_signal_that_was_asked_for() -> None:
    job = running(MWM, *W)
    assert job.stop(signal=2, grace=0.5) == stop_actions(*W, signal=2, grace=0.5)


# Timers, hosts, faults ----------------------------------------------------------------------


def test_timers_are_set_when_they_are_to_run() -> None:
    job = Job()
    assert job.created(MWM, start_timeout=5.0, run_timeout=60.0) == [SetTimer(timer("start"), 5.0)]
    job.planned(*W)
    assert job.started("worker:0", "worker:1") == []
    assert job.started("worker:2") == [CancelTimer(timer("start")), SetTimer(timer("run"), 60.0)]


def test_hosts_that_do_not_answer_in_time() -> None:
    job = Job()
    job.created(MWM, start_timeout=5.0)
    assert job.timed_out("start") == [Finish(job.outcome)]
    assert job.verdict == ("failed", StartTimeoutError.exit_code, "distrun")


def test_tasks_that_do_not_start_in_time() -> None:
    job = Job()
    job.created(MWM, start_timeout=5.0)
    job.planned(*W)
    job.started("worker:0")
    assert job.timed_out("start") == stop_actions(*W)
    assert job.verdict == ("failed", StartTimeoutError.exit_code, "distrun")
    assert "worker:1, worker:2" in job.words


def test_the_start_timer_means_nothing_once_all_run() -> None:
    job = running(MWM, *W)
    assert job.timed_out("start") == []
    assert job.undecided()


def test_a_job_that_runs_too_long_has_the_grace() -> None:
    job = running(MWM, *W, run_timeout=60.0)
    assert job.timed_out("run") == stop_actions(*W, grace=GRACE)
    assert job.verdict == ("failed", StartTimeoutError.exit_code, "distrun")


def test_a_job_that_stalls_is_shown_where_and_ended() -> None:
    job = Job()
    job.created(MWM, stall_timeout=60.0)
    job.planned(*W)
    assert SetTimer(timer("stall"), 60.0) not in job.started("worker:0", "worker:1")
    assert SetTimer(timer("stall"), 60.0) in job.started("worker:2")
    assert job.timed_out("stall") == [
        CancelTimer(timer("stall")),
        *stop_actions(*W, signal=SIGABRT),
    ]
    assert job.verdict == ("failed", StartTimeoutError.exit_code, "distrun")


def test_a_job_that_ends_otherwise_is_not_watched_for_stalls() -> None:
    job = running(MWM, *W, stall_timeout=60.0)
    assert CancelTimer(timer("stall")) in job.exited("worker:1", 3)
    assert job.timed_out("stall") == []


def test_a_task_that_could_not_be_executed() -> None:
    job = Job()
    job.created(MWM)
    job.planned(*W)
    job.started("worker:0")
    actions = job(
        events.TaskNotStarted,
        task="worker:1",
        attempt=0,
        cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
    )
    assert actions == stop_actions("worker:0", "worker:2")
    assert job.verdict == ("failed", HostError.exit_code, "distrun")
    assert job.words == "worker:1 could not be started: there is no program 'x' in PATH"
    assert job.state.tasks["worker:1"].phase is TaskPhase.FAILED


def test_an_agents_fault_stops_all() -> None:
    job = running(MWM, *W)
    assert job(
        events.HostFault, host="localhost", cause=Cause(Code.LOG_DISK_FULL, path="/x")
    ) == stop_actions(*W)
    assert job.verdict == ("failed", HostError.exit_code, "distrun")


def test_an_aborted_preparation() -> None:
    job = Job()
    job.created(MWM)
    actions = job(events.Aborted, cause=because("port 1 is taken"), exit_code=69)
    assert actions == [Finish(job.outcome)]
    assert job.verdict == ("failed", 69, "distrun")


def test_what_attempts_have_used_is_unknown_if_it_is_of_one_of_them() -> None:
    task = not_none(running(MWM, "worker:0", "worker:1").state.tasks.get("worker:0"))
    known = task.used.with_attempt(2.0, 50, 7, 8)
    assert known == Used(cpu_seconds=2.0, peak_memory_bytes=50, read_bytes=7, written_bytes=8)
    unknown = Used(cpu_seconds=None, peak_memory_bytes=50, read_bytes=None, written_bytes=None)
    assert known.with_attempt(None, None, None, None) == unknown
    assert unknown.with_attempt(2.0, 40, 7, 8) == unknown
    assert total([2, None]) is None
    assert total([2, 3]) == 5
    assert highest([None, 5, 4]) == 5
    assert highest([None]) is None


def test_the_use_of_an_attempt_is_unknown_if_nobody_saw_its_end() -> None:
    unknown = Used(cpu_seconds=None, peak_memory_bytes=None, read_bytes=None, written_bytes=None)
    ended = running(MWM, "worker:0", "worker:1")
    ended.gone("worker:0", code=1)
    assert ended.state.tasks["worker:0"].used == unknown, "the report had no numbers"
    lost = running(MWM, "worker:0", "worker:1")
    lost(events.HostLost, host=lost.state.tasks["worker:0"].host, cause=because("silent"))
    lost.finish()
    assert {task.used for task in lost.state.tasks.values()} == {unknown}


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


# Every order --------------------------------------------------------------------------------

INDEPENDENT = f"{PS}, independent"
SHAPES = [
    (MWM, None, ("worker:0",)),
    (MWM, None, (*W, "evaluator:0")),
    (MWM, None, ("chief:0", "worker:0", "evaluator:0")),
    (MWM, Success.ALL, ("worker:0", "worker:1", "evaluator:0")),
    (MWM, Success.WORKER_0, W),
    (MWM, Success.CHIEF, ("chief:0", "worker:0")),
    (PS, None, (*CLUSTER, "evaluator:0")),
    (PS, Success.ALL, (*CLUSTER, "evaluator:0")),
    (PS, Success.WORKER_0, CLUSTER),
    (INDEPENDENT, None, CLUSTER),
    (INDEPENDENT, Success.ALL, (*CLUSTER, "evaluator:0")),
    (INDEPENDENT, Success.WORKER_0, ("worker:0", "worker:1", "ps:0")),
    ("mirrored", None, ("worker:0",)),
]
INTERRUPTIONS = ("stop", "start", "run", "evaluator", "fault", "lost")


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, Success | None, tuple[str, ...], list[Any]]:
    """A job, and what happens to it: each task's own events in order, the rest anywhere."""
    strategy, success, names = draw(st.sampled_from(SHAPES))
    queues: list[list[tuple[str, object]]] = []
    for name in names:
        how = draw(st.sampled_from([0, 0, 0, 1, 42, -9, -15, "not started"]))
        steps = ["not started"] if how == "not started" else ["started", how, "ended"]
        queues.append([(name, each) for each in steps])
    queues += [[("", each)] for each in draw(st.lists(st.sampled_from(INTERRUPTIONS)))]
    order = []
    while queues:
        queue = draw(st.sampled_from(queues))
        order.append(queue.pop(0))
        queues = [each for each in queues if each]
    return strategy, success, names, order


def feed(job: Job, name: str, what: Any) -> list[Action]:  # noqa: PLR0911 - one line a kind
    lost = job.state.hosts["localhost"].lost is not None
    if what == "stop":
        return job.stop()
    if what == "fault":
        return job(events.HostFault, host="localhost", cause=Cause(Code.LOG_DISK_FULL, path="/x"))
    if what == "lost":
        return job(events.HostLost, host="localhost", cause=because("gone"))
    if what in ("start", "run", "evaluator"):
        each_set = [
            1 for each in job.actions if isinstance(each, SetTimer) and str(each.timer) == what
        ]
        fired = [
            1
            for each in job.history
            if isinstance(each, events.TimedOut) and str(each.timer) == what
        ]
        return job.timed_out(what) if len(each_set) > len(fired) else []
    if lost:  # nobody is left there to say anything
        return []
    if what == "not started":
        return job(
            events.TaskNotStarted,
            task=name,
            attempt=0,
            cause=Cause(Code.PROGRAM_NOT_FOUND, name="x"),
        )
    if what == "started":
        return job.started(name)
    if what == "ended":
        return job.ended(name)
    return job.exited(name, what) if what >= 0 else job.exited(name, signal=-what)


EVALUATOR_KILLED = [
    *(("chief:0", step) for step in ("started", 0, "ended")),
    *(("evaluator:0", step) for step in ("started", 0)),
    *((None, "stop"), (None, "evaluator"), ("evaluator:0", "ended")),
    *((name, "not started") for name in ("worker:0", "worker:1", "ps:0")),
]


@settings(max_examples=examples(400))
@given(history=histories())
@example(
    history=(
        "parameter_server",
        None,
        ("chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0"),
        EVALUATOR_KILLED,
    )
)
def test_whatever_happens_in_whatever_order_a_job_ends_once_and_one_way(history: Any) -> None:
    strategy, success, names, order = history
    job = Job()
    strategy, _, workers = strategy.partition(", ")
    workers = Workers(workers or "coordinated")
    job.created(strategy, success, workers=workers, run_timeout=60.0)
    job.planned(*names)
    decided = None
    for name, what in order:
        feed(job, name, what)
        decided = decided or job.state.outcome
        assert job.state.outcome == decided, "an outcome changed after it was decided"
        assert replay(job.history) == job.state
        if any(isinstance(each, Finish) for each in job.actions):
            assert all(task.phase.is_final for task in job.state.tasks.values())

    assert all(task.phase.is_final for task in job.state.tasks.values())
    assert [action for action in job.actions if isinstance(action, Finish)] == [
        Finish(not_none(decided))
    ]
    stops = [action for action in job.actions if isinstance(action, StopTask)]
    for name in names:
        signals = [stop.signal for stop in stops if stop.task == name]
        assert signals.count(SIGTERM) <= 1, "told twice"
        assert signals.count(SIGKILL) <= 1
        assert SIGTERM not in signals[signals.index(SIGKILL) :] if SIGKILL in signals else True
    job.finish()

    lines = [json.dumps(events.encode(event)) for event in job.history]
    recorded = [event for line in lines if (event := events.decode(json.loads(line)))]
    assert replay(recorded) == job.state
