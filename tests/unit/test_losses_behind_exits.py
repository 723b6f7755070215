"""A host is lost at about the same time as tasks elsewhere exit: the loss is the first cause."""

from __future__ import annotations

from typing import Any

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.cli.cause_text import cause_text
from distrun.cli.event_text import event_text
from distrun.lifecycle import SIGKILL, SIGTERM, MakePlan, StopTask
from distrun.spec.model import RestartSpec
from distrun.strategies import Role
from distrun.verdict.analysis import analyze
from distrun.verdict.log_analysis import LogTail
from distrun.verdict.model import Kind, Verdict
from table import failures

from .histories import MWM, PS, Job, because, restarts_planned, starts

PLACES = {"worker:0": "h1", "worker:1": "h2"}
CLUSTER = {"chief:0": "h1", "worker:0": "h1", "worker:1": "h2", "ps:0": "h1"}
OWN = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 7, in <module>\n'
    "    load()\n"
    "ValueError: short read: 0 of 4 bytes\n"
)


class Hosts(Job):
    """A job whose tasks may move to other hosts. Times are chosen: its events are seconds apart."""

    now = 100.0

    def __call__(self, kind: type[events.Event], **fields: Any) -> list[Any]:
        actions = self.happened(kind(at=fields.pop("at", self.now), **fields))
        self.now += 0.01
        return actions

    def ready(self, host: str, token: str = "1") -> list[Any]:
        about = {"hostname": host, "python": "3.11", "cores": 2.0, "gpus": (), "room": 4}
        return self(events.HostReady, host=host, agent_pid=2, token=token, **about)

    def plan(self, places: dict[str, str], **about: Any) -> list[Any]:
        records = tuple(
            events.TaskRecord(name=name, role=Role(role), index=int(index), host=host)
            for name, host in places.items()
            for role, _, index in [name.partition(":")]
        )
        return self(events.JobPlanned, tasks=records, **about)

    def lose_link(self, code: Code = Code.AGENT_EXITED) -> None:
        self(events.LinkLost, host="h2", cause=Cause(code))

    def lose(self) -> list[Any]:
        return self(events.HostLost, host="h2", cause=because("its agent is gone"))


def running(
    strategy: str = MWM, places: dict[str, str] = PLACES, link: float | None = 60.0, **policy: Any
) -> Hosts:
    job = Hosts()
    policy = {"max": 3, "backoff": 1.0, **policy}
    job.created(strategy, restart=RestartSpec(**policy), link_timeout=link, start_timeout=300.0)
    for host in ("h1", "h2", "h3"):
        job.ready(host)
    job.plan(places)
    job.started(*places)
    return job


def verdict_on(job: Hosts, **logs: str) -> Verdict:
    """Return the last verdict. `logs`: by the task's name, `worker0`."""
    texts = {name: text.encode() for name, text in logs.items()}
    *_, case = failures(job.history)
    return analyze(case, lambda name: LogTail(texts.get(name.replace(":", ""), b"")))


def lose_after_exit(job: Hosts, code: int = 1) -> None:
    """Kill the host's processes; the peer exits at once, which is heard of first."""
    job.gone("worker:0", code)
    job.lose_link()
    job.now += 1.5
    job.timed_out("restart:1")
    job.lose()


@pytest.mark.parametrize("is_back", [False, True])
def test_the_restart_and_the_verdict_are_of_the_lost_host(is_back: bool) -> None:
    job = running()
    lose_after_exit(job)
    first, second = restarts_planned(job)
    assert cause_text(first.cause) == "worker:0 exited 1"
    assert cause_text(second.cause) == "h2 was lost: its agent is gone"
    assert (second.number, second.left) == (first.number, first.left) == (1, 2)
    assert "(counted already)" in str(event_text(second))
    assert job.state.budgets["job"].counted == job.state.restarts_made == 1
    if is_back:
        job.ready("h2", token="2")
    job.timed_out("restart:1")
    assert job.actions[-1] == MakePlan(restart=1, tasks=("worker:0", "worker:1"))
    begun = job.plan({**PLACES, "worker:1": "h2" if is_back else "h3"})
    assert starts(begun) == [("worker:0", 1), ("worker:1", 1)]
    verdict = verdict_on(job)
    assert (verdict.kind, verdict.task, verdict.echoes) == (
        Kind.HOST_LOST, "worker:1", ("worker:0",),
    )  # fmt: skip
    (replacement,) = job.state.replacements
    assert replacement.cause == second.cause


def test_without_restart_the_lost_host_ends_the_job() -> None:
    job = running(max=0)
    job.gone("worker:0", 1)
    job.lose_link()
    job.lose()
    job(events.VerdictReached, verdict=verdict_on(job))
    assert job.verdict == ("failed", 69, "distrun")
    assert job.words.startswith("worker:1 was lost with h2: its agent is gone")


def test_tasks_that_were_killed_with_their_host_are_not_the_cause_but_lost() -> None:
    job = running()
    job.gone("worker:1", signal=SIGKILL)
    job.lose_link()
    job.gone("worker:0", 1)
    job.now += 1.5
    assert starts(job.timed_out("restart:1")) == []
    job.now += 20.0  # it takes long to connect anew
    job.lose()
    assert [each.cause.code for each in restarts_planned(job)] == [
        Code.TASK_KILLED, Code.HOST_LOST,
    ]  # fmt: skip
    job.timed_out("restart:1")
    job.plan({**PLACES, "worker:1": "h3"})
    assert verdict_on(job).kind is Kind.HOST_LOST
    assert len(restarts_planned(job)) == 2


def test_a_host_that_is_lost_long_after_a_failure_is_not_its_cause() -> None:
    job = running(backoff=30.0)
    job.gone("worker:1", signal=SIGKILL)
    job.gone("worker:0", 1)
    job.now += 20.0
    job.lose_link()
    job.lose()
    job.now += 11.0
    job.timed_out("restart:1")
    job.plan({**PLACES, "worker:1": "h3"})
    (planned,) = restarts_planned(job)
    assert planned.cause.code is Code.TASK_KILLED
    assert verdict_on(job).kind is Kind.KILLED


@pytest.mark.parametrize(("seconds", "kind"), [(0.1, Kind.HOST_LOST), (3.0, Kind.EXCEPTION)])
def test_an_exception_of_ones_own_is_the_cause_only_if_it_was_earlier(
    seconds: float, kind: Kind
) -> None:
    job = running()
    job.gone("worker:0", 1)
    job.now += seconds
    job.lose_link()
    job.lose()
    job.timed_out("restart:1")
    job.plan({**PLACES, "worker:1": "h3"})
    assert verdict_on(job, worker0=OWN).kind is kind


def test_a_host_whose_heartbeats_are_missing_was_lost_before_that_was_noticed() -> None:
    job = running()
    job.gone("worker:0", 1)
    job.now += 8.0
    job.lose_link(Code.HEARTBEAT_MISSING)
    job.now += 50.0
    job.lose()
    assert restarts_planned(job)[-1].cause.code is Code.HOST_LOST


def test_a_peer_may_exit_with_any_code_after_a_host_was_lost() -> None:
    job = running(places={**PLACES, "worker:2": "h3"}, never_on=(7,))
    job.lose_link()
    job.lose()
    job(events.TaskExited, task="worker:0", attempt=0, code=7, was_stopping=False)
    assert job.undecided()
    assert [each.cause.code for each in restarts_planned(job)] == [Code.HOST_LOST]


def refused(code: int = 7, **policy: Any) -> Hosts:
    """A job whose group is stopped after an exit code that ends it."""
    job = running(**{"places": {**PLACES, "evaluator:0": "h1"}, "never_on": (7,), **policy})
    actions = job(events.TaskExited, task="worker:0", attempt=0, code=code, was_stopping=False)
    assert job.undecided(), "h2 may be lost"
    assert [each.task for each in actions if isinstance(each, StopTask)] == ["worker:0", "worker:1"]
    job.timed_out("restart:0")
    job.ended("worker:0")
    assert job.undecided()
    return job


@pytest.mark.parametrize("policy", [{}, {"max": 1}, {"never_on": (), "on": ("preemption",)}])
def test_a_code_that_ends_the_job_does_not_if_a_lost_host_explains_it(policy: Any) -> None:
    job = refused(**policy)
    job.lose_link()
    job.lose()
    (planned,) = restarts_planned(job)
    assert (planned.number, planned.cause.code) == (1, Code.HOST_LOST)
    assert planned.left == job.state.policy.max - 1
    assert job.state.budgets["job"].counted == 1
    job.timed_out("restart:1")
    begun = job.plan({**PLACES, "worker:1": "h3", "evaluator:0": "h1"}, kept=("evaluator:0",))
    assert starts(begun) == [("worker:0", 1), ("worker:1", 1)]
    assert verdict_on(job).kind is Kind.HOST_LOST


@pytest.mark.parametrize("is_late", [False, True])
def test_a_code_that_ends_the_job_does_once_no_lost_host_explains_it(is_late: bool) -> None:
    job = refused()
    if is_late:
        job.now += 6.0
        job.lose_link()
        job.lose()
    else:
        job.gone("worker:1", signal=SIGTERM)
    assert job.verdict == ("failed", 7, "task")
    assert "restart.never_on" in job.words
    assert not restarts_planned(job)
    job(events.TaskExited, task="evaluator:0", attempt=0, signal=SIGTERM)
    job.ended("evaluator:0")
    found = verdict_on(job)
    assert (found.kind, found.task) == (Kind.EXIT, "worker:0")


def test_no_restart_is_left_after_the_loss_that_explains_the_exit() -> None:
    job = running(never_on=(7,), max=1)
    job.gone("worker:1", 1)
    job.gone("worker:0", signal=SIGTERM)
    job.timed_out("restart:1")
    job.started(*PLACES)
    job(events.TaskExited, task="worker:0", attempt=1, code=7, was_stopping=False)
    job.lose_link()
    job.lose()
    assert job.verdict == ("failed", 69, "distrun")
    assert "h2 was lost" in job.words


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_code_that_ends_the_job_after_a_task_was_killed_with_its_host(is_lost: bool) -> None:
    job = running(never_on=(7,), backoff=30.0)
    job.gone("worker:1", signal=SIGKILL)
    job(events.TaskExited, task="worker:0", attempt=0, code=7, was_stopping=False)
    job.ended("worker:0")
    assert job.undecided()
    if is_lost:
        job.lose_link()
        job.lose()
        job.timed_out("restart:1")
        assert restarts_planned(job)[-1].cause.code is Code.HOST_LOST
        assert isinstance(job.actions[-1], MakePlan)
    else:
        job.timed_out("restart:1")
        assert job.verdict == ("failed", 7, "task")


def test_on_hosts_that_end_with_the_supervisor_a_code_ends_the_job_at_once() -> None:
    job = Hosts()
    job.created(MWM, restart=RestartSpec(max=3, never_on=(7,)))
    for host in ("h1", "h2"):
        job.ready(host, token="")
    job.plan(PLACES)
    job.started(*PLACES)
    job(events.TaskExited, task="worker:0", attempt=0, code=7, was_stopping=False)
    assert job.verdict == ("failed", 7, "task")


def test_a_restart_of_one_task_becomes_that_of_its_group_and_is_counted_once() -> None:
    job = running(PS, CLUSTER, max=1)
    job.gone("worker:0", 1)
    job.lose_link()
    assert starts(job.timed_out("restart:1")) == [("worker:0", 1)]  # its own host is not lost
    job = running(PS, CLUSTER, max=1)
    job.gone("worker:0", 1)
    job.lose_link()
    actions = job.lose()
    assert [each.task for each in actions if type(each).__name__ == "StopTask"] == [
        "chief:0", "ps:0",
    ]  # fmt: skip
    first, second = restarts_planned(job)
    assert (first.tasks, first.number) == (("worker:0",), second.number)
    assert (second.tasks, second.left, second.is_free) == (tuple(CLUSTER), 0, True)
    for name in ("chief:0", "ps:0"):
        job.gone(name, signal=SIGTERM)
    job.timed_out("restart:1")
    assert isinstance(job.actions[-1], MakePlan)
    begun = job.plan({**CLUSTER, "worker:1": "h3"})
    assert starts(begun) == [(name, 1) for name in CLUSTER]


def test_echoes_of_lost_hosts_do_not_speak_against_the_host_of_a_task() -> None:
    job = running(host_failures=2, max=9)
    lose_after_exit(job)
    assert (job.state.failing_host, job.state.failures_in_a_row) == ("h1", 0)


def test_no_task_starts_on_a_host_that_may_be_gone() -> None:
    job = running()
    job.gone("worker:0", 1)
    job.gone("worker:1", signal=SIGTERM)
    job.lose_link()
    assert starts(job.timed_out("restart:1")) == []
    assert not job.state.restarts[1].is_planning
    restored = job(events.LinkRestored, host="h2")
    assert starts(restored) == [("worker:0", 1), ("worker:1", 1)]
    assert not job.state.restarts


def test_a_restart_does_not_wait_for_a_link_without_end() -> None:
    job = running(link=None)
    job.gone("worker:1", 1)
    job.gone("worker:0", 1)
    job.lose_link()
    job.timed_out("restart:1")
    job.timed_out("start")
    assert job.verdict == ("failed", 69, "distrun")
    assert "h2 cannot be prepared" in job.words


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_evaluator_waits_for_the_link_of_its_host(is_lost: bool) -> None:
    job = running(places={"worker:0": "h1", "evaluator:0": "h2"})
    job.gone("evaluator:0", 1)
    job.lose_link()
    assert starts(job.timed_out("restart:1")) == []
    if is_lost:
        job.lose()
        assert isinstance(job.actions[-1], MakePlan)
    else:
        assert starts(job(events.LinkRestored, host="h2")) == [("evaluator:0", 1)]
    assert job.undecided()
    assert len(restarts_planned(job)) == 1
