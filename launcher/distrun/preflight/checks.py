"""What a preflight says: one check after another, each good or not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SUBJECTS = (
    *("reached", "preparation", "network", "clock", "inspection", "disk", "workdir", "program"),
    *("script", "python", "tensorflow", "proxies"),
)
"""What checks are about, in the order in which a job needs it."""


class Grade(str, Enum):
    """How a check ended. Only what has failed keeps a job from starting."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing about one host.

    Attributes:
        subject: what was looked at, one of SUBJECTS.
        text: what was found.
        advice: what to do, where it is not good.
        dialled_from: the hosts that cannot reach it, where that is what failed.
        addresses: where they cannot.
    """

    host: str
    subject: str
    grade: Grade
    text: str
    advice: str | None = None
    dialled_from: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The text for where nothing else tells the host."""
        return self.text if self.dialled_from else f"{self.host}: {self.text}"
