"""A host is lost at about the same time as tasks elsewhere exit: the loss is the first cause."""

from __future__ import annotations

import pytest

from .scenarios import play, scenarios, verdict_words, verdicts

OWN = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/train.py", line 7, in <module>\n'
    "    load()\n"
    "ValueError: short read: 0 of 4 bytes\n"
)
SCENARIOS = """
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

# it is back before the restart
mwm worker:2 | rooms worker:1@h2
worker:0 gone 1
link-lost h2
wait 1.5
timer restart:1
lost h2
ready h2 2
timer restart:1 ->+ plan 1
plan worker:0@h1 worker:1@h2 ->+ start worker:0 worker:1 #1
= verdict host_lost worker:1 worker:0

# without restarts the lost host ends the job
mwm worker:2 | rooms worker:1@h2 max=0
worker:0 gone 1
link-lost h2
lost h2
verdict
= failed 69 distrun
= mentions worker:1 was lost with h2

# tasks that were killed with their host are not the cause but lost
mwm worker:2 | rooms worker:1@h2
worker:1 gone -9
link-lost h2
worker:0 gone 1
wait 1.5
timer restart:1 -> cancel start; set start 300
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

# a host whose heartbeats are missing was lost before that was noticed
mwm worker:2 | rooms worker:1@h2
worker:0 gone 1
wait 8
link-lost h2 HEARTBEAT_MISSING
wait 50
lost h2
= codes TASK_EXITED HOST_LOST

# a peer may exit with any code after a host was lost
mwm worker:3 | rooms worker:1@h2 worker:2@h3 never_on=7
link-lost h2
lost h2
worker:0 exit 7 unasked
= undecided
= codes HOST_LOST

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

# neither does one that is in no policy
mwm worker:2 evaluator | rooms worker:1@h2 on=preemption max=1
worker:0 exit 7 unasked ->+ stop worker:0 worker:1
timer restart:1
worker:0 end
= undecided
link-lost h2
lost h2
= codes HOST_LOST
= left 0

# a code that ends the job does once all other hosts have answered
mwm worker:2 evaluator | rooms worker:1@h2 never_on=7
worker:0 exit 7 unasked
timer restart:1
worker:0 end
worker:1 gone -15
= failed 7 task
= mentions restart.never_on
= restarts 0
evaluator:0 gone -15
= verdict exit worker:0

# and once a host is lost too late to explain it
mwm worker:2 evaluator | rooms worker:1@h2 never_on=7
worker:0 exit 7 unasked
timer restart:1
worker:0 end
wait 6
link-lost h2
lost h2
= failed 7 task
= restarts 0

# and once the link is back, for which an evaluator has waited, too
mwm worker:2 evaluator | rooms worker:1@h2 evaluator:0@h2 never_on=7
evaluator:0 gone 1
worker:0 exit 7 unasked
worker:0 end
worker:1 gone -15
link-lost h2
timer restart:2
timer restart:1 -> nothing
= undecided
link-back h2 ->+ start evaluator:0 #1; stop evaluator:0
= failed 7 task

# a code that ends the job after a task was killed, with its host or alone
mwm worker:2 | rooms worker:1@h2 never_on=7 backoff=30
worker:1 gone -9
worker:0 exit 7 unasked
worker:0 end
= undecided
timer restart:1
= failed 7 task

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

# a task restarts alone while another host's link is lost
ps chief worker:2 ps | rooms worker:1@h2 max=1
worker:0 gone 1
link-lost h2
timer restart:1 ->+ start worker:0 #1

# no task starts on a host that may be gone
mwm worker:2 | rooms worker:1@h2
worker:0 gone 1
worker:1 gone -15
link-lost h2
timer restart:1 -> cancel start; set start 300
link-back h2 ->+ start worker:0 worker:1 #1

# a restart does not wait for a link without end
mwm worker:2 | rooms worker:1@h2 link=off
worker:1 gone 1
worker:0 gone 1
link-lost h2
timer restart:1
timer start
= failed 69 distrun
= mentions h2 cannot be prepared

# an evaluator waits for the link of its host
mwm worker evaluator | rooms evaluator:0@h2
evaluator:0 gone 1
link-lost h2
timer restart:1 -> nothing
link-back h2 ->+ start evaluator:0 #1
= undecided

# on hosts that end with the supervisor a code ends the job at once
mwm worker:2 | worker:1@h2 max=3 never_on=7
worker:0 exit 7 unasked
= failed 7 task
"""


@scenarios(SCENARIOS)
def test_what_follows(scenario: list[str]) -> None:
    play(scenario)


@pytest.mark.parametrize(("seconds", "kind"), [(0.1, "host_lost"), (3.0, "exception")])
def test_an_exception_of_ones_own_is_the_cause_only_if_it_was_earlier(
    seconds: float, kind: str
) -> None:
    job = play(["mwm worker:2 | rooms worker:1@h2", "worker:0 gone 1", f"wait {seconds}",
                "link-lost h2", "lost h2", "timer restart:1",
                "plan worker:0@h1 worker:1@h3"])  # fmt: skip
    assert verdict_words(verdicts(job, worker0=OWN)[-1]).split()[0] == kind


def test_echoes_of_lost_hosts_do_not_speak_against_the_host_of_a_task() -> None:
    job = play(["mwm worker:2 | rooms worker:1@h2 host_failures=2 max=9", "worker:0 gone 1",
                "link-lost h2", "wait 1.5", "timer restart:1", "lost h2",
                "timer restart:1 ->+ plan 1"])  # fmt: skip
    assert job.state.failures_in_a_row == 0
