"""The life of a job: (state, event) -> (state, actions). Pure: no I/O and no clock.

Every event goes into the record first, then through :func:`step`; replaying the record gives the
same state again. The guarantees:

1. A job ends in exactly one final phase, with one outcome, and only when no task is left.
2. The first failure that nothing is restarted after decides the outcome; what follows it never
   changes that. Only a verdict may: it can name another task as the first cause, and then the
   exit code is that one's.
3. An attempt is asked to stop at most once for each reason: a restart, the job's end, and at once.
4. After success, what happens to tasks that are being stopped is no failure.
5. An attempt begins only when the one before it has ended: no process of it is left.
6. Those that start again together start together: when the attempts of all of them have ended
   and the backoff has passed.
7. Between two spells of health no more than `restart.max` restarts are counted, and no more than
   20 in a row are free.
8. An evaluator's failures, and its restarts, touch no other task, and not the job's restarts.
9. The same history gives the same state and actions, the jitter of the backoff included.
"""

from distrun.lifecycle.actions import (
    Action,
    Announce,
    CancelTimer,
    Finish,
    SetTimer,
    StartTask,
    StopTask,
)
from distrun.lifecycle.decisions import SIGABRT, SIGKILL
from distrun.lifecycle.restarts import MOST_FREE_IN_A_ROW, PROMPT_GRACE, SIGTERM, STALL, Result
from distrun.lifecycle.rules import replay, step
from distrun.lifecycle.state import (
    Account,
    Budget,
    HostState,
    JobPhase,
    JobState,
    Restart,
    TaskPhase,
    TaskState,
)

__all__ = [
    "MOST_FREE_IN_A_ROW",
    "PROMPT_GRACE",
    "SIGABRT",
    "SIGKILL",
    "SIGTERM",
    "STALL",
    "Account",
    "Action",
    "Announce",
    "Budget",
    "CancelTimer",
    "Finish",
    "HostState",
    "JobPhase",
    "JobState",
    "Restart",
    "Result",
    "SetTimer",
    "StartTask",
    "StopTask",
    "TaskPhase",
    "TaskState",
    "replay",
    "step",
]
