"""The result of a preflight: one check after another."""

from __future__ import annotations

from enum import Enum

from distrun.agent.protocol import Cause  # at run time too: distrun.codec reads the hints
from distrun.frozen import dataclass


class Subject(str, Enum):
    """What a check examined, in the order in which a job needs it."""

    REACHED = "reached"
    NETWORK = "network"
    CLOCK = "clock"
    INSPECTION = "inspection"
    DISK = "disk"
    WORKDIR = "workdir"
    PROGRAM = "program"
    SCRIPT = "script"
    PYTHON = "python"
    TENSORFLOW = "tensorflow"
    PROXIES = "proxies"


class Grade(str, Enum):
    """The result of a check. Only FAILED keeps a job from starting."""

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
