"""The result of a preflight: one check after another."""

from __future__ import annotations

from enum import Enum

# At run time too: distrun.codec reads the hints.
from distrun.agent.protocol import Cause, Subject
from distrun.frozen import Frozen


class Grade(str, Enum):
    """The result of a check. Only FAILED keeps a job from starting."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


class Check(Frozen, kw_only=True):
    """One result about one host. `cause` is what was found, whether it is good or not."""

    host: str
    subject: Subject
    grade: Grade
    cause: Cause
