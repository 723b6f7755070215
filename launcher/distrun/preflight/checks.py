"""The result of a preflight: one check after another."""

from __future__ import annotations

from enum import Enum

# At run time too: distrun.codec reads the hints.
from distrun.agent.protocol import Cause, Subject
from distrun.frozen import dataclass


class Grade(str, Enum):
    """The result of a check. Only FAILED prevents the start of a job."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One result about one host. `cause` is what was found, whether it is good or not."""

    host: str
    subject: Subject
    grade: Grade
    cause: Cause
