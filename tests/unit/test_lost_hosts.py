"""What comes of a job that loses a host, for good, or whose agent there cannot continue."""

from __future__ import annotations

from typing import Any

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_text
from distrun.errors import HostError
from distrun.lifecycle import (
    SIGTERM,
    CancelTimer,
    Finish,
    JobPhase,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Success
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
