"""What comes of a job that loses a host, for good, or whose agent there cannot continue."""

from __future__ import annotations

from typing import Any

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_text
from distrun.cli.verdict_text import verdict_lines
from distrun.errors import HostError
from distrun.lifecycle import (
    SIGTERM,
    CancelTimer,
    Finish,
    JobPhase,
    MakePlan,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Role, Success
from distrun.verdict.model import Kind, Verdict
from harness.values import not_none

from .histories import MWM, PS, Job, because, restartable, running, stop_actions, timer

W = ("worker:0", "worker:1", "worker:2")
CLUSTER = ("chief:0", "worker:0", "worker:1", "ps:0")
OFF = {"evaluator:0": "h3", "worker:1": "h2"}


def test_a_lost_host_takes_its_tasks_along() -> None:
    job = running(MWM, *W)
    job.gone("worker:0")
    job.exited("worker:1")
    actions = job(
        events.HostLost, host="localhost", cause=because("its agent was killed by SIGKILL")
    )
    assert actions == [Finish(job.outcome)]
    assert job.verdict == ("failed", HostError.exit_code, "distrun")
    assert job.state.hosts["localhost"].lost == because("its agent was killed by SIGKILL")
    assert job.phases() == {"worker:0": "succeeded", "worker:1": "succeeded", "worker:2": "failed"}
    assert "lost with its host" in cause_text(not_none(job.state.tasks["worker:2"].reason))


def test_a_host_with_nothing_but_the_evaluator_does_not_end_the_job() -> None:
    job = running(MWM, *W, "evaluator:0", places=OFF, restart=RestartSpec(max=2))
    assert job(events.HostLost, host="h3", cause=because("silent")) == []
    assert job.undecided()
    assert job.phases()["evaluator:0"] == "failed"
    assert "silent" in cause_text(not_none(job.state.tasks["evaluator:0"].reason))
    assert job.state.hosts["h3"].lost == because("silent")
    for name in W:
        job.gone(name)
    assert job.verdict == ("succeeded", 0, "task")
    assert job.actions[-1] == Finish(job.outcome)


def test_an_evaluators_restart_is_no_more_once_its_host_is_lost() -> None:
    job = running(MWM, "worker:0", "evaluator:0", places=OFF, restart=RestartSpec(max=2))
    job.gone("evaluator:0", 1)
    assert job.phases()["evaluator:0"] == "restarting"
    actions = job(events.HostLost, host="h3", cause=because("silent"))
    assert actions == [CancelTimer(timer("restart:1"))]
    assert job.phases()["evaluator:0"] == "failed"
    assert job.timed_out("restart:1") == []
    assert job.undecided()


def test_a_job_whose_evaluator_is_lost_while_it_starts_has_started_without_it() -> None:
    job = Job()
    job.created(MWM)
    job.planned("worker:0", "evaluator:0", places=OFF)
    job.started("worker:0")
    assert job.phase() is JobPhase.STARTING
    job(events.HostLost, host="h3", cause=because("silent"))
    assert job.phase() is JobPhase.RUNNING


def test_where_success_needs_the_evaluator_its_host_ends_the_job() -> None:
    job = running(MWM, "worker:0", "evaluator:0", places=OFF, success=Success.ALL)
    job(events.HostLost, host="h3", cause=because("silent"))
    assert job.verdict == ("failed", HostError.exit_code, "distrun")


@pytest.mark.parametrize("how", ["exited", "gone"])
def test_the_host_of_a_finished_task_is_not_needed(how: str) -> None:
    job = running(MWM, "worker:0", "worker:1", places=OFF)
    getattr(job, how)("worker:1")
    job(events.HostLost, host="h2", cause=because("silent"))
    assert job.undecided()
    assert job.phases()["worker:1"] == "succeeded"
    job.gone("worker:0")
    assert job.verdict == ("succeeded", 0, "task")


def test_nothing_is_lost_that_can_go_on_though_an_agent_cannot() -> None:
    job = running(MWM, "worker:0", "worker:1", "evaluator:0", places=OFF)
    job.gone("worker:1")
    assert job(events.HostFault, host="h2", cause=Cause(Code.LOG_DISK_FULL, path="/x")) == []
    assert job(events.HostFault, host="h3", cause=Cause(Code.LOG_DISK_FULL, path="/x")) == []
    assert job.verdict is None
    assert job(
        events.HostFault, host="localhost", cause=Cause(Code.LOG_DISK_FULL, path="/x")
    ) == stop_actions("worker:0", "evaluator:0")


@pytest.mark.parametrize(
    ("kind", "about", "words"),
    [
        (events.HostLost, {"cause": because("silent")}, "was lost: silent"),
        (
            events.HostFault,
            {"cause": Cause(Code.LOG_DISK_FULL, path="/x")},
            "cannot continue: the disk of its tasks' logs, '/x', is full",
        ),
    ],
)
def test_a_restart_that_needs_a_lost_host_ends_the_job(
    kind: type[events.Event], about: dict[str, Any], words: str
) -> None:
    job = running(MWM, *W, places=OFF, restart=RestartSpec(max=2))
    job.gone("worker:1")
    job(kind, host="h2", **about)
    assert job.exited("worker:0", 3) == stop_actions("worker:0", "worker:2")
    assert job.verdict == ("failed", HostError.exit_code, "distrun")
    assert job.words == (
        f"h2 {words}; worker:1 cannot restart there, as it must after worker:0 exited 3"
    )
    assert not any(isinstance(event, events.RestartPlanned) for event in job.history)


def test_a_host_that_is_lost_before_its_tasks_start_again_ends_the_job() -> None:
    job = running(MWM, "worker:0", "worker:1", places=OFF, restart=RestartSpec(max=2))
    job.gone("worker:1")
    job.gone("worker:0", 3)
    job(events.HostLost, host="h2", cause=because("silent"))
    assert job.verdict == ("failed", HostError.exit_code, "distrun")
    assert job.phases() == {"worker:0": "failed", "worker:1": "succeeded"}


def test_a_restart_that_needs_no_lost_host_is_none_of_its_business() -> None:
    job = running(PS, *CLUSTER, "evaluator:0", places=OFF, restart=RestartSpec(max=2))
    job(events.HostLost, host="h3", cause=because("silent"))
    job.exited("worker:0", 3)
    assert job.undecided()
    assert job.phases()["worker:0"] == "exited"


def test_an_evaluator_on_a_host_that_cannot_go_on_stays_down() -> None:
    job = running(MWM, "worker:0", "evaluator:0", places=OFF, restart=RestartSpec(max=2))
    job(events.HostFault, host="h3", cause=Cause(Code.LOG_DISK_FULL, path="/x"))
    assert job.gone("evaluator:0", signal=SIGTERM) == []
    assert job.phases()["evaluator:0"] == "failed"
    assert not job.state.restarts


def test_a_host_that_is_lost_before_anything_is_planned_ends_the_job() -> None:
    job = Job()
    job.created(MWM)
    assert job(events.HostLost, host="h2", cause=because("silent")) == [Finish(job.outcome)]
    assert job.verdict == ("failed", HostError.exit_code, "distrun")


def test_a_lost_host_ends_a_job_that_waits_to_start_again() -> None:
    job = restartable(MWM, *W)
    job.gone("worker:1", 3)
    job.exited("worker:0", signal=SIGTERM)
    job(events.HostLost, host="localhost", cause=because("its agent was killed by SIGKILL"))
    assert job.verdict == ("failed", 69, "distrun")
    assert job.phases() == {"worker:0": "stopped", "worker:1": "failed", "worker:2": "failed"}
    assert job.state.tasks["worker:1"].reason is None, "it had ended before"


def lose_and_restart(*, is_back: bool) -> Job:
    """Two workers, each on a host with room; h2 is lost, and may be back before the restart."""
    job = Job()
    job.created(MWM, restart=RestartSpec(max=2))
    ready = {"hostname": "here", "python": "3.11", "cores": 2.0, "gpus": (), "room": 1}
    for host in ("h1", "h2", "h3"):
        job(events.HostReady, host=host, agent_pid=2, token=f"{host}-1", **ready)
    job(events.JobPlanned, tasks=records("h1", "h2"))
    job.started("worker:0", "worker:1")
    job(events.HostLost, host="h2", cause=because("silent"))
    job.gone("worker:0", None, SIGTERM)
    if is_back:
        job(events.HostReady, host="h2", agent_pid=2, token="h2-2", **ready)
    job.timed_out("restart:1")
    return job


def records(*hosts: str) -> tuple[events.TaskRecord, ...]:
    return tuple(
        events.TaskRecord(name=f"worker:{index}", role=Role.WORKER, index=index, host=host)
        for index, host in enumerate(hosts)
    )


@pytest.mark.parametrize("is_back", [False, True])
def test_a_restart_needs_a_plan_if_a_host_was_lost_even_if_it_is_back(is_back: bool) -> None:
    job = lose_and_restart(is_back=is_back)
    assert job.actions[-1] == MakePlan(restart=1, tasks=("worker:0", "worker:1"))
    job(events.JobPlanned, tasks=records("h1", "h2"))
    assert job.attempts() == {"worker:0": 1, "worker:1": 1}
    assert not any(map(job.state.has_new_agent, job.state.tasks.values()))


def test_the_verdict_says_what_was_done_and_what_it_has_cost() -> None:
    job = lose_and_restart(is_back=False)
    job(events.JobPlanned, tasks=records("h1", "h3"), former_hosts={"worker:1": "h2"})
    (replacement,) = job.state.replacements
    cause = Cause(Code.LOST_WITH_HOST, within=(because("silent"),))
    verdict = Verdict(task="worker:1", kind=Kind.HOST_LOST, cause=cause, replacement=replacement)
    job(events.VerdictReached, verdict=verdict)
    done = "worker:1 moved from h2 to h3; the number of repeated steps is not known"
    assert f"done          {done}" in str(verdict_lines(not_none(job.state.verdict)))
    steps = {"step": 11, "former_step": 50, "repeated_steps": 40, "seconds": 12.0}
    job(events.TrainingContinued, task="worker:0", **steps)
    done = "worker:1 moved from h2 to h3; 40 steps repeated, 12 s without a step"
    assert f"done          {done}" in str(verdict_lines(not_none(job.state.verdict)))
