"""The form of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.verdict.model import Kind


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One text, or a few of the same meaning, and what they mean.

    Plain texts instead of patterns: they are searched for in many logs, in little time.
    """

    kind: Kind
    cause: str
    """What it came to, behind the task's name: `worker:1 ran out of GPU memory`."""
    advice: str = ""
    any_of: tuple[str, ...]
    all_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    anywhere: bool = False
    """Whether it also counts outside of the last error: so peculiar that it cannot be chance."""
    is_echo: bool = False
    """Whether it tells of another task's end, where there is one."""

    def mark(self, text: str) -> str | None:
        """The text of it that is there."""
        if any(each in text for each in self.none_of):
            return None
        if not all(each in text for each in self.all_of):
            return None
        return next((each for each in self.any_of if each in text), None)
