"""The life of a job: (state, event) -> (state, actions). Pure: no I/O and no clock.

Every event goes into the record first, then through :func:`step`; replaying the record gives the
same state again. The guarantees:

1. A job ends in exactly one final phase, with one outcome, and only when no task is left.
2. The first failure that counts decides the outcome; what follows it never changes that.
3. A task is asked to stop at most once a way: gracefully, then at once.
4. After success, what happens to tasks that are being stopped is no failure.
"""

from distrun.lifecycle.actions import Action, CancelTimer, Finish, SetTimer, StartTask, StopTask
from distrun.lifecycle.decisions import PROMPT_GRACE, SIGKILL, SIGTERM, Result
from distrun.lifecycle.rules import replay, step
from distrun.lifecycle.state import HostState, JobPhase, JobState, TaskPhase, TaskState

__all__ = [
    "PROMPT_GRACE",
    "SIGKILL",
    "SIGTERM",
    "Action",
    "CancelTimer",
    "Finish",
    "HostState",
    "JobPhase",
    "JobState",
    "Result",
    "SetTimer",
    "StartTask",
    "StopTask",
    "TaskPhase",
    "TaskState",
    "replay",
    "step",
]
