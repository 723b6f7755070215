"""The life of a job: (state, event) -> (state, actions). Pure: no I/O and no clock.

Every event is recorded first and then passed to :func:`step`. Replaying the record gives the same
state again. Guarantees:

1. A job ends in exactly one final phase, with one outcome, and only when no task is left.
2. The first failure that leads to no restart decides the outcome. Later failures never change it.
   Only a verdict may: if it names another task as the first cause, the exit code is that task's.
3. An attempt is asked to stop at most once for each reason: a restart, the job's end, and at once.
4. After success, errors of tasks that are being stopped are no failures.
5. An attempt begins only when the one before it has ended: no process of it is left.
6. Tasks of one restart start together: when the attempts of all of them have ended and the
   backoff has passed.
7. At most `restart.max` restarts are counted until `restart.reset_after` passes without a failure,
   and at most 20 in a row are free. A role with its own policy has its own count.
8. The failures and restarts of an evaluator affect no other task, and not the job's restarts.
9. An independent worker or its chief that has exited 0 by itself never runs again, unless its
   policy is `on: always`.
10. The same history gives the same state and actions, also the same jitter of the backoff.
"""

from distrun.agent.protocol import StopTask
from distrun.lifecycle.actions import (
    Action,
    Announce,
    CancelTimer,
    Finish,
    MakePlan,
    SetTimer,
    StartAttempt,
)
from distrun.lifecycle.outcomes import SIGABRT, may_recur
from distrun.lifecycle.restarts import (
    LOST_GRACE,
    MOST_FREE_IN_A_ROW,
    SIGTERM,
    STALL,
    START,
    TF_PREEMPTED,
    why_not_restarted,
)
from distrun.lifecycle.state import (
    JOB,
    SAME_TIME,
    SIGKILL,
    HostState,
    JobPhase,
    JobState,
    LostAgent,
    Restart,
    TaskPhase,
    TaskState,
    Used,
    highest,
    total,
)
from distrun.lifecycle.transitions import replay, step

__all__ = [
    "JOB",
    "LOST_GRACE",
    "MOST_FREE_IN_A_ROW",
    "SAME_TIME",
    "SIGABRT",
    "SIGKILL",
    "SIGTERM",
    "STALL",
    "START",
    "TF_PREEMPTED",
    "Action",
    "Announce",
    "CancelTimer",
    "Finish",
    "HostState",
    "JobPhase",
    "JobState",
    "LostAgent",
    "MakePlan",
    "Restart",
    "SetTimer",
    "StartAttempt",
    "StopTask",
    "TaskPhase",
    "TaskState",
    "Used",
    "highest",
    "may_recur",
    "replay",
    "step",
    "total",
    "why_not_restarted",
]  # fmt: skip
