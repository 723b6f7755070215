"""The life of a job: scenarios replayed, and every order of events that can be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.lifecycle import (
    SIGKILL,
    SIGTERM,
    Action,
    Finish,
    SetTimer,
    StopTask,
    Used,
    highest,
    replay,
    total,
)
from distrun.strategies import Success, Workers
from harness.examples import examples
from harness.values import not_none

from .histories import MWM, PS, Job, because, running
from .scenarios import play, scenarios

W = ("worker:0", "worker:1", "worker:2")
CLUSTER = ("chief:0", "worker:0", "worker:1", "ps:0")
SCENARIOS = """
# multi_worker_mirrored succeeds once all workers have exited 0
mwm worker:3
worker:0 worker:1 gone 0 -> nothing
= job running
worker:2 exit 0 -> stop worker:2
= succeeded 0 task
worker:2 end -> finish
finish
= job succeeded
= tasks all succeeded

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

# a death by signal is 128 and its number
mwm worker:3
worker:0 exit -11
= failed 139 task

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

# an evaluator's exit 1 never ends the job
mwm worker evaluator
evaluator:0 gone 1 -> nothing
= undecided
worker:0 gone 0 ->+ finish
= succeeded 0 task

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

# an evaluator killed meanwhile is not told again
mwm worker evaluator
worker:0 exit 0
stop -> stop worker:0 evaluator:0 by 9 grace 0
timer evaluator -> nothing

# after a failure an evaluator is stopped with the rest
mwm worker evaluator
worker:0 exit 1 -> stop worker:0 evaluator:0

# an evaluator still starting at success is not taken for stopped
mwm worker evaluator | planned
worker:0 start
worker:0 exit 0
evaluator:0 start
= tasks evaluator:0=running
evaluator:0 gone 4
= tasks evaluator:0=failed
= succeeded 0 task

# success all does not wait for servers that never exit
ps chief worker:2 ps evaluator | success=ALL
evaluator:0 gone 0
= undecided
chief:0 exit 0 -> stop chief:0 worker:0 worker:1 ps:0
= succeeded 0 task

# an independent worker that exits 0 has finished and the chief decides
ps chief worker:2 ps | workers=independent
worker:0 worker:1 gone 0 -> nothing
= undecided
chief:0 exit 0 -> stop chief:0 ps:0
= succeeded 0 task

# without a chief worker 0 decides and the servers are stopped
ps worker:2 ps | workers=independent success=WORKER_0
worker:1 gone 0 -> nothing
worker:0 exit 0 -> stop worker:0 ps:0
= succeeded 0 task

# success all of independent workers waits for each but the servers
ps chief worker:2 ps | workers=independent success=ALL
chief:0 gone 0
= undecided
worker:1 gone 0
= undecided
worker:0 exit 0 -> stop worker:0 ps:0
= succeeded 0 task

# a server that exits 0 before worker 0 has failed
ps worker:2 ps | workers=independent success=WORKER_0
ps:0 exit 0
= failed 1 distrun
= words ps:0 exited 0 before worker:0 had finished

# stopped while preparing
mwm worker:3 | created
stop -> finish
plan worker:0 worker:1 worker:2 -> nothing
finish
= job stopped
= stopped 137 distrun

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

# stopped while running its tasks may exit as they like
mwm worker:3
stop -> stop worker:0 worker:1 worker:2 grace 10
worker:0 gone 0
worker:1 gone 9
worker:2 gone -15
finish
= tasks worker:0=succeeded worker:1=stopped worker:2=stopped
= stopped 137 distrun

# asked twice it stops at once and a third time does nothing
mwm worker:3
stop
worker:0 gone 0
stop -> stop worker:1 worker:2 by 9 grace 0
stop -> nothing

# asked while it fails it stops at once and has failed
mwm worker:3
worker:0 gone 3
stop -> stop worker:1 worker:2 by 9 grace 0
= failed 3 task

# it is stopped by the signal that was asked for
mwm worker:2
stop 2 0.5 -> stop worker:0 worker:1 by 2 grace 0.5

# timers are set when they are to run
mwm worker:2 | planned start=5 run=60
worker:0 start -> nothing
worker:1 start -> cancel start; set run 60

# hosts that do not answer in time
mwm worker:3 | created start=5
timer start -> finish
= failed 75 distrun

# tasks that do not start in time
mwm worker:3 | planned start=5
worker:0 start
timer start -> stop worker:0 worker:1 worker:2
= failed 75 distrun
= mentions worker:1, worker:2

# the start timer means nothing once all run
mwm worker:3
timer start -> nothing
= undecided

# a job that runs too long has the grace
mwm worker:3 | run=60
timer run -> stop worker:0 worker:1 worker:2 grace 10
= failed 75 distrun

# a job that stalls is shown where and ended
mwm worker:3 | planned stall=60
worker:0 worker:1 start -> nothing
worker:2 start ->+ set stall 60
timer stall -> cancel stall; stop worker:0 worker:1 worker:2 by 6
= failed 75 distrun

# a job that ends otherwise is not watched for stalls
mwm worker:3 | stall=60
worker:1 exit 3 ->+ cancel stall
timer stall -> nothing

# a task that could not be executed
mwm worker:3 | planned
worker:0 start
worker:1 refused -> stop worker:0 worker:2
= failed 69 distrun
= words worker:1 could not be started: there is no program 'x' in PATH
= tasks worker:1=failed

# an agent's fault stops all
mwm worker:3
fault -> stop worker:0 worker:1 worker:2
= failed 69 distrun

# an aborted preparation
mwm worker:3 | created
abort -> finish
= failed 69 distrun
"""


@scenarios(SCENARIOS)
def test_what_follows(scenario: list[str]) -> None:
    play(scenario)


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
