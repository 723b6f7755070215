"""What comes of a job that loses a host, for good, or whose agent there cannot continue."""

from __future__ import annotations

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
