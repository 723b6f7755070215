"""Restarts as the pure lifecycle decides them: who starts again, when, and how often."""

from typing import Any

import pytest

from distrun.agent.protocol.causes import Cause, Code
from distrun.job import events
from distrun.lifecycle import JOB, SIGKILL, SetTimer, may_recur
from distrun.spec.restart_spec import RestartSpec
from distrun.verdict.model import Kind, Verdict
from distrun.words.causes import cause_text
from harness.histories import backoff_over, because, restarts_planned, running
from harness.scenarios import play, scenarios, start_again

SCENARIOS = """
# a mirrored group starts again together
mwm chief worker:2 evaluator | max=3
worker:1 exit -9 -> stop chief:0 worker:0 worker:1 grace 0.25; set restart:1
= job restarting
= undecided
chief:0 worker:0 exit -15
chief:0 worker:0 end
backoff -> nothing
worker:1 end -> start chief:0 worker:0 worker:1 #1
chief:0 worker:0 worker:1 start
= job running
= attempts chief:0=1 worker:0=1 worker:1=1 evaluator:0=0

# who saves has longer when its group is lost
mwm worker:3 | max=3
worker:0 saves
worker:1 exit -9 -> stop worker:0; stop worker:1 worker:2 grace 0.25; set restart:1

# a parameter server's worker starts again alone
ps chief worker:2 ps | max=3
worker:1 exit 0 ->+ stop worker:1
= job running
worker:1 end
= tasks worker:1=restarting
backoff -> start worker:1 #1
worker:1 start
worker:1 gone -9
again worker:1
= attempts chief:0=0 worker:0=0 worker:1=2 ps:0=0
chief:0 exit 0
= succeeded 0 task

# a group restart takes in a worker's own and is counted once
ps chief worker:2 ps | max=3
worker:1 gone 1
ps:0 exit 1 -> cancel restart:1; stop chief:0 worker:0 ps:0 grace 0.25; set restart:2
timer restart:1 -> nothing
again chief:0 worker:0 worker:1 ps:0
= attempts all 1
= budget 1

# a failure that was judged before its restart is not judged again when the job is stopped
mwm worker | max=3
worker:0 gone 1
again worker:0
worker:0 gone 1
stop ->+ cancel restart:2; finish
= verdict exit worker:0

# a server that fails after the chief has finished cannot be restarted
ps chief worker:2 ps | max=3 workers=independent success=ALL
chief:0 gone 0
ps:0 exit 3
= failed 3 task
= mentions chief:0 has finished, and the others cannot start again without it

# the chief finishes while a second restart waits for it
ps chief worker:2 ps | max=3 workers=independent success=ALL
ps:0 gone 3
again chief:0 worker:0 worker:1 ps:0
ps:0 gone 4
chief:0 exit 0 unasked
= failed 4 task
= mentions ps:0 exited 4, after 1 restart; not restarted: chief:0 has finished

# the chief finishes while the others wait for a place for those of a lost host
ps chief worker:2 ps | rooms workers=independent success=ALL ps:0@h2
lost h2
chief:0 exit 0 unasked
= failed 69 distrun
= mentions h2 was lost: silent; not restarted: chief:0 has finished

# the chief finishes while a server that could not be started waits for another host
ps chief worker:2 ps | rooms planned workers=independent success=ALL ps:0@h2
chief:0 worker:0 worker:1 start
ps:0 refused
chief:0 exit 0 unasked
= failed 69 distrun

# an evaluator that was killed with its host starts elsewhere because of the host
mwm worker evaluator | rooms evaluator:0@h2
evaluator:0 exit -9
lost h2
= codes TASK_KILLED HOST_LOST

# an evaluator starts again alone and disturbs nobody
mwm worker evaluator | max=1
evaluator:0 gone 1
= job running
backoff -> start evaluator:0 #1
evaluator:0 start
= budget 0
evaluator:0 gone 1 -> nothing
= tasks worker:0=running evaluator:0=failed
worker:0 gone 0
= succeeded 0 task

# an evaluator that waits to start again does not hold up success
mwm worker evaluator | max=3
evaluator:0 gone 1
worker:0 exit 0 ->+ cancel restart:1
worker:0 end -> finish
= tasks evaluator:0=failed

# the policy of the role that failed first decides and its budget pays
ps chief worker:2 ps | max=2 worker.max=1 worker.on=130-255 ps.max=0
worker:0 gone -9
= left 0
again worker:0
chief:0 exit 1
= left 0 1
again chief:0 worker:0 worker:1 ps:0
worker:0 exit -9
= failed 137 task
= mentions SIGKILL, after 1 restart; not restarted: cluster.worker.restart.max allows 1 restart

# a stall that is not in the job's policy ends it
mwm worker:3 | max=3 on=130-255 stall=60 worker.max=0
timer stall
= mentions a stall is not in restart.on, which is 130-255

# an evaluator that always starts again stays down without failure in the end
mwm worker evaluator | max=0 evaluator.max=1 evaluator.on=always
evaluator:0 gone 0
again evaluator:0
evaluator:0 gone 0 -> nothing
= tasks worker:0=running evaluator:0=succeeded
worker:0 gone 0
= succeeded 0 task

# what the spec never restarts ends a restart that its echo has begun
mwm worker:3 | max=3 never_on=3
worker:0 exit 1
= job restarting
worker:1 exit 3 unasked
= failed 3 task
= cause worker:1
= mentions restart.never_on
worker:0 worker:1 end
worker:2 gone -15
= finished yes

# a program that cannot be executed is never tried again
mwm worker:3 | max=3
worker:1 exit 1
worker:0 worker:2 exit -15
worker:0 worker:1 worker:2 end
backoff
worker:0 refused -> stop worker:1 worker:2
= failed 69 distrun

# after a spell of health restarts are counted from 0 again
mwm worker:3 | max=1 reset_after=600
worker:0 exit 1 -> stop worker:0 worker:1 worker:2 grace 0.25; set restart:1
again worker:0 worker:1 worker:2 ->+ set health:job 600
timer health:job
worker:0 exit 1
= undecided
again worker:0 worker:1 worker:2
worker:0 exit 1 -> stop worker:0 worker:1 worker:2
= failed 1 task
= words worker:0 exited 1, after 2 restarts; not restarted: restart.max allows 1 restart

# without reset_after they are never forgotten
mwm worker:3 | max=3 reset_after=off
worker:0 exit 1
again worker:0 worker:1 worker:2 -> nothing

# after a preemption the others have the grace and it is free
mwm worker:3 | max=1
worker:1 exit 42 after 60 -> stop worker:0 worker:1 worker:2 grace 10; set restart:1
= budget 0
= free 1
= left 1
again worker:0 worker:1 worker:2
= job running
worker:0 exit -15 after 60
= free 1 1
again worker:0 worker:1 worker:2
worker:0 exit 143 after 60
= free 1 1 1

# an attempt that came to a step was worth it however short
mwm worker:3 | max=1
worker:1 reports STEP=12
worker:1 exit 42 after 4
= free 1
again worker:0 worker:1 worker:2
worker:1 exit 42 after 4
= free 1 0

# step 0 of a bar is no progress
mwm worker:3 | max=1
worker:1 reports STEP=0 STEPS=500
worker:1 exit 42 after 4
= free 0

# where there are no restarts a preemption gives none
mwm worker:3 | max=0
worker:1 exit 42 after 3600 -> stop worker:0 worker:1 worker:2 grace 10
= failed 42 task

# nor where the role that failed has none
ps chief worker:2 ps | max=3 worker.max=0
worker:1 exit 42 after 3600
= failed 42 task

# stopped while it waits to start again it ends at once
mwm worker:3 | max=3
worker:1 gone 1
worker:0 worker:2 gone -15
= tasks all restarting
stop -> cancel restart:1; finish
= tasks worker:0=stopped worker:1=failed worker:2=stopped
finish
= stopped 137 distrun

# stopped while it stops to start again
mwm worker:3 | max=3
worker:1 gone 1
stop -> cancel restart:1; stop worker:0 worker:2 grace 10
timer restart:1 -> nothing
worker:0 gone -15
worker:2 gone -15 ->+ finish

# the run timeout counts over restarts
mwm worker:3 | max=3 run=60
worker:1 exit 1
again worker:0 worker:1 worker:2 -> set health:job 600
worker:1 exit 1
timer run
= failed 75 distrun

# a failure before all have started restarts too
mwm worker:3 | planned max=3
worker:0 start
worker:0 gone 1
worker:1 start
= tasks worker:1=stopping
worker:1 gone -15
worker:2 start
backoff
worker:2 gone -15 -> start worker:0 worker:1 worker:2 #1

# a stall starts the group again and each attempt has all of its time
mwm worker:3 evaluator | max=1 stall=60
evaluator:0 gone 1
timer stall ->+ cancel stall; stop worker:0 worker:1 worker:2 by 6
timer stall -> nothing
worker:0 worker:1 worker:2 gone -6
backoff -> start worker:0 worker:1 worker:2 #1
worker:0 worker:1 worker:2 start ->+ set stall 60
timer stall
= failed 75 distrun

# a task alone that waits to start again does not stall
mirrored worker | max=3 on=3 stall=60
worker:0 gone 3
timer stall -> nothing
again worker:0 ->+ set stall 60

# an evaluator that starts again begins no new wait for progress
mwm worker:3 evaluator | max=3 stall=30
evaluator:0 gone 1
backoff
evaluator:0 start -> set health:evaluator 600

# a stall of parameter servers is the whole group's
ps chief worker:2 ps | max=1 stall=60
timer stall ->+ stop chief:0 worker:0 worker:1 ps:0 by 6

# what is stopped for a restart may exit as it likes
mwm worker:3 | max=3 never_on=3,143
worker:0 exit 1
worker:1 exit 3 asked
= undecided

# a stall restarts by the job's policy only
mwm worker:3 | max=3 on=failure stall=60 worker.max=0
timer stall
= undecided

# an evaluator that cannot be executed any more fails no job and does not hold up success
mwm worker evaluator | max=1
evaluator:0 gone 3
backoff
worker:0 gone 0
= finished no
evaluator:0 refused
= tasks evaluator:0=failed
= succeeded 0 task
= finished yes

# nor if another host could execute it
mwm worker evaluator | rooms max=1
evaluator:0 gone 3
backoff
evaluator:0 refused
= undecided

# a failure ends a spell of health before its time
mwm worker:3 | max=2
worker:0 exit 1
again worker:0 worker:1 worker:2
worker:0 exit 1 ->+ cancel health:job
again worker:0 worker:1 worker:2 ->+ set health:job 600

# where all must succeed an evaluator fails the job once it has no restart left
mwm worker evaluator | evaluator.max=1 success=ALL
evaluator:0 gone 4
= undecided
again evaluator:0
evaluator:0 exit 4
= failed 4 task
= mentions not restarted: cluster.evaluator.restart.max allows 1 restart

# a spell of health begins when all that restart run again
ps chief worker:2 ps | max=3
worker:0 gone 1
worker:1 gone 1
timer restart:1 -> start worker:0 #1
worker:0 start -> nothing
timer restart:2 -> start worker:1 #1
worker:1 start -> set health:job 600

# no host is left out because an evaluator fails
mwm worker:2 evaluator | rooms host_failures=1 evaluator:0@h2
evaluator:0 gone 1
again evaluator:0

# failures on two hosts by turns leave out none of them
mwm worker:2 | rooms host_failures=2 worker:1@h2
worker:1 gone 1
again worker:0 worker:1
worker:0 gone 1
worker:1 gone -15
backoff ->+ start worker:0 worker:1 #2

# the health of an evaluator does not end the failures in a row of workers
mwm worker:2 evaluator | rooms host_failures=2 worker:1@h2
evaluator:0 gone 1
again evaluator:0 ->+ set health:evaluator 600
worker:1 gone 1
again worker:0 worker:1
timer health:evaluator
worker:1 gone 1
worker:0 gone -15
backoff ->+ plan 3
"""


@scenarios(SCENARIOS)
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


def test_tasks_that_fail_at_the_same_time_are_no_recurrence() -> None:
    job = play(["ps chief worker:2 ps | max=9", "worker:0 worker:1 gone 1", "= undecided"])
    assert not may_recur(job.state)


def test_with_several_hosts_a_failure_recurs_only_after_one_was_left_out() -> None:
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
