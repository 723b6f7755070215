"""What comes of a job that loses a host, for good, or whose agent there cannot continue."""

from __future__ import annotations

import pytest

from distrun.job import events
from distrun.lifecycle import (
    SIGTERM,
    MakePlan,
)
from distrun.spec.model import RestartSpec
from distrun.strategies import Role

from .histories import MWM, Job, because
from .scenarios import play, scenarios

SCENARIOS = """
# a lost host takes its tasks along
mwm worker:3
worker:0 gone 0
worker:1 exit 0
lost localhost -> finish
= failed 69 distrun
= tasks worker:0=succeeded worker:1=succeeded worker:2=failed
= why worker:2 lost with its host

# a host with nothing but the evaluator does not end the job
mwm worker:3 evaluator | evaluator:0@h3 worker:1@h2 max=2
lost h3 -> nothing
= undecided
= tasks evaluator:0=failed
= why evaluator:0 silent
worker:0 worker:1 worker:2 gone 0 ->+ finish
= succeeded 0 task

# an evaluator's restart is no more once its host is lost
mwm worker evaluator | evaluator:0@h3 max=2
evaluator:0 gone 1
= tasks evaluator:0=restarting
lost h3 -> cancel restart:1
= tasks evaluator:0=failed
timer restart:1 -> nothing
= undecided

# where success needs the evaluator its host ends the job
mwm worker evaluator | evaluator:0@h3 success=ALL
lost h3
= failed 69 distrun

# the host of a finished task is not needed
mwm worker:2 | worker:1@h2
worker:1 gone 0
lost h2
= undecided
= tasks worker:1=succeeded
worker:0 gone 0
= succeeded 0 task

# nothing is lost that can go on though an agent cannot
mwm worker:2 evaluator | worker:1@h2 evaluator:0@h3
worker:1 gone 0
fault h2 -> nothing
fault h3 -> nothing
= undecided
fault localhost -> stop worker:0 evaluator:0

# a host that is lost before its tasks start again ends the job
mwm worker:2 | worker:1@h2 max=2
worker:1 gone 0
worker:0 gone 3
lost h2
= failed 69 distrun
= tasks worker:0=failed worker:1=succeeded

# a host that is lost before anything is planned ends the job
mwm worker | created
lost h2 -> finish
= failed 69 distrun

# a lost host ends a job that waits to start again
mwm worker:3 | max=3
worker:1 gone 3
worker:0 exit -15
lost localhost
= failed 69 distrun
= tasks worker:0=stopped worker:1=failed worker:2=failed
= why worker:1 None
"""


@scenarios(SCENARIOS)
def test_what_follows(scenario: list[str]) -> None:
    play(scenario)


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
