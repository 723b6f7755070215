"""What all schedulers that hold submitted jobs have in common: Slurm and Kubernetes."""

from __future__ import annotations

from distrun.agent.protocol import Cause
from distrun.errors import HostError
from distrun.frozen import Frozen

SUBMITTED = "DISTRUN_SUBMITTED"
"""The variable of a supervisor in a pod that has the name of its Job."""


class SchedulerError(HostError):
    """A scheduler refuses what is asked, does not answer, or answers in an unexpected form."""


class MissingCommandError(SchedulerError):
    """The scheduler's command is not installed on this host."""


class RefusedError(SchedulerError):
    """The scheduler refuses what is asked, as without a login."""


class QueueEntry(Frozen, kw_only=True):
    """What a scheduler says of a job.

    Attributes:
        state: the scheduler's word, such as PENDING.
        reason: why it waits, in the scheduler's words; empty if it does not.
        starts_at: when it started, or will at the earliest (Unix seconds); None: not known.
        ends_at: when it ended, or will at the latest.
        cause: why it ended that has not written it.
    """

    id: str
    scheduler: str
    state: str
    reason: str = ""
    starts_at: float | None = None
    ends_at: float | None = None
    is_pending: bool = False
    is_active: bool = True
    cause: Cause | None = None
