"""Judges before the first task whether a job can run on its hosts.

Pure: the supervisor asks the hosts, and :func:`.judgement.judge` turns their :class:`.Answers` into
checks. Each check has a cause with a code; only the command line puts it into words. The package
itself has only what the record needs.
"""

from __future__ import annotations

from enum import Enum

# At run time too: distrun.codec reads the hints.
from distrun.agent.protocol import Cause, Subject
from distrun.frozen import Frozen


class Grade(str, Enum):
    """The result of a check. Only FAILED prevents the start of a job."""

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
