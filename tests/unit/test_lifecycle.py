"""The life of a job: scenarios replayed, also of hosts that are lost for good."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun.job import events
from distrun.lifecycle import JOB, replay
from distrun.lifecycle.chunked_map import ChunkedMap
from harness.histories import MWM, because, running
from harness.scenarios import play, scenarios, verdict_words, verdicts

from .test_verdict_words import raised

SCENARIOS = """
# the first failure decides and the rest is stopped promptly
mwm worker:3
worker:1 exit 3 -> stop worker:0 worker:1 worker:2
= failed 3 task
= cause worker:1
= words worker:1 exited 3
worker:0 gone 1
worker:1 end
worker:2 gone -9 -> finish
finish
= failed 3 task
= tasks worker:0=stopped worker:1=failed worker:2=stopped

# the chief's exit 0 is success and servers are stopped
ps chief worker:2 ps
chief:0 exit 0 -> stop chief:0 worker:0 worker:1 ps:0
worker:0 gone -15
worker:1 gone 1
ps:0 gone -9
chief:0 end -> finish
finish
= succeeded 0 task
= tasks chief:0=succeeded worker:0=stopped worker:1=stopped ps:0=stopped

# after success an evaluator has the grace to end
mwm worker evaluator
worker:0 exit 0 -> stop worker:0; set evaluator 10
worker:0 end -> nothing
evaluator:0 gone 0 -> finish
= tasks evaluator:0=succeeded

# an evaluator that takes longer is stopped and nobody else again
ps chief worker:2 ps evaluator
chief:0 exit 0
timer evaluator -> stop evaluator:0
evaluator:0 gone -15
chief:0 end
worker:0 worker:1 ps:0 gone -15
finish
= succeeded 0 task
= tasks evaluator:0=stopped

# scancel stops the job, although tasks and hosts hear of it first, and a second one kills
mwm worker:2 | worker:1@h2
cancelled h2 -> stop worker:0 worker:1
scancel -> nothing
scancel -> stop worker:0 worker:1 by 9 grace 0
= stopped 143 distrun

# also a task that does not survive its signal
mwm worker:2
worker:1 exit -15
scancel -> nothing
= stopped 143 distrun

# but a failure that came before stays one
mwm worker:2
worker:1 exit 1
scancel -> stop worker:0 worker:1 by 9 grace 0
= failed 1 task

# stopped while preparing
mwm worker:3 | created
stop -> finish
plan worker:0 worker:1 worker:2 -> nothing
finish
= job stopped
= stopped 137 distrun

# a custom role decides no success
mwm worker proxy | success=ALL
worker:0 gone 0
= succeeded 0 task

# a custom role that exits 0 fails the job
mwm worker proxy
proxy:0 gone 0
= failed 1 distrun

# also where all others are waited for
mwm worker proxy | success=ALL
proxy:0 gone 0
= failed 1 distrun

# worker 0 alone decides where the spec says so
mwm worker:3 | success=WORKER_0
worker:1 gone 0 -> nothing
worker:0 exit 0 -> stop worker:0 worker:2
= succeeded 0 task

# stopped while starting
mwm worker:3 | planned
worker:0 start
stop -> stop worker:0 worker:1 worker:2 grace 10
worker:1 start
= tasks worker:1=stopping
worker:2 refused
= job stopping
worker:0 worker:1 gone -15
finish
= stopped 137 distrun

# asked twice it stops at once and a third time does nothing
mwm worker:3
stop
worker:0 gone 0
stop -> stop worker:1 worker:2 by 9 grace 0
stop -> nothing

# it is stopped by the signal that was asked for
mwm worker:2
stop 2 0.5 -> stop worker:0 worker:1 by 2 grace 0.5

# tasks that do not start in time
mwm worker:3 | planned start=5
worker:0 start
timer start -> stop worker:0 worker:1 worker:2
= failed 75 distrun
= mentions worker:1, worker:2

# a job that runs too long has the grace
mwm worker:3 | planned run=60
worker:0 worker:1 start -> nothing
worker:2 start ->+ set run 60
timer run -> stop worker:0 worker:1 worker:2 grace 10
= failed 75 distrun

# a job that stalls is shown where and ended
mwm worker:3 | planned stall=60
worker:0 worker:1 start -> nothing
worker:2 start ->+ set stall 60
timer stall -> cancel stall; stop worker:0 worker:1 worker:2 by 6
= failed 75 distrun

# a task that could not be executed
mwm worker:3 | planned
worker:0 start
worker:1 refused -> stop worker:0 worker:2
= failed 69 distrun
= words worker:1 could not be started: there is no program 'x' in PATH
= tasks worker:1=failed

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

# nothing is lost that can go on though an agent cannot
mwm worker:2 evaluator | worker:1@h2 evaluator:0@h3
worker:1 gone 0
fault h2 -> nothing
fault h3 -> nothing
= undecided
fault localhost -> stop worker:0 evaluator:0

# a code of an evaluator that was to move to another host ends its restart, and no job
mwm worker:2 evaluator | rooms evaluator:0@h2 max=3 never_on=7
fault h2
evaluator:0 exit 7 unasked
= undecided
evaluator:0 end
= tasks worker:0=running evaluator:0=failed
worker:0 worker:1 gone 0 ->+ finish
= succeeded 0 task

# a host that is lost before anything is planned ends the job
mwm worker | created
lost h2 -> finish
= failed 69 distrun

# a host is lost just after a peer has exited
mwm worker:2 | rooms worker:1@h2
worker:0 gone 1
link-lost h2
wait 1.5
timer restart:1 -> nothing
lost h2
= codes TASK_EXITED HOST_LOST
= numbers 1 1
= left 2 2
= budget 1
timer restart:1 ->+ plan 1
plan worker:0@h1 worker:1@h3 ->+ start worker:0 worker:1 #1
= verdict host_lost worker:1 worker:0

# tasks that were killed with their host are not the cause but lost
mwm worker:2 | rooms worker:1@h2
worker:1 gone -9
link-lost h2
worker:0 gone 1
wait 1.5
timer restart:1 -> set start 300
wait 20
lost h2
= codes TASK_KILLED HOST_LOST
timer restart:1
plan worker:0@h1 worker:1@h3
= verdict host_lost worker:1

# a host that is lost long after a failure is not its cause
mwm worker:2 | rooms worker:1@h2 backoff=30
worker:1 gone -9
worker:0 gone 1
wait 20
link-lost h2
lost h2
wait 11
timer restart:1
plan worker:0@h1 worker:1@h3
= codes TASK_KILLED
= verdict killed worker:1

# a code that ends the job does not if a lost host explains it
mwm worker:2 evaluator | rooms worker:1@h2 never_on=7
worker:0 exit 7 unasked ->+ stop worker:0 worker:1
timer restart:1
worker:0 end
= undecided
link-lost h2
lost h2
= codes HOST_LOST
= numbers 1
= left 2
= budget 1
timer restart:1
plan worker:0@h1 worker:1@h3 evaluator:0@h1 kept=evaluator:0 ->+ start worker:0 worker:1 #1
= verdict host_lost worker:1 worker:0

# nor if a full disk of another host explains it, which is known later
mwm worker:2 | rooms worker:1@h2 never_on=7
worker:0 gone 7
fault h2
worker:1 gone -15
timer restart:1 ->+ plan 1

# or was known before
mwm worker:2 | rooms worker:1@h2 never_on=7
fault h2
worker:0 exit 7 unasked
worker:0 end
worker:1 gone -15
timer restart:1 ->+ plan 1

# a restart of one task becomes that of its group and is counted once
ps chief worker:2 ps | rooms worker:1@h2 max=1
worker:0 gone 1
link-lost h2
lost h2 ->+ stop chief:0 ps:0 grace 0.25
= numbers 1 1
= left 0 0
= free 0 1
chief:0 ps:0 gone -15
timer restart:1 ->+ plan 1
plan chief:0@h1 worker:0@h1 worker:1@h3 ps:0@h1 ->+ start chief:0 worker:0 worker:1 ps:0 #1

# on hosts that end with the supervisor a code ends the job at once
mwm worker:2 | worker:1@h2 max=3 never_on=7
worker:0 exit 7 unasked
= failed 7 task
"""


@scenarios(SCENARIOS)
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
    created = {name: value for name, value in vars(job.history[0]).items() if name != "at"}
    queued = {name: created[name] for name in ("job_id", "name", "strategy", "spec_file")}
    job(events.JobQueued, batch_id="7", **queued)
    for change in ("restart.max=1", "restart.max=2"):
        job(events.JobResumed, **{**created, "changes": (change,), "down": 5.0})
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
