"""Something that a task said of its end, for the rules to judge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Statement:
    """An exception with its message, or other lines that belong together, with their indices.

    `type` is the exception's, with its module; `frames` are its traceback's lines that name files;
    `before` are lines that a form may want to see before its own. `is_printed`: any line that the
    program printed towards its end, of which only those in a known form count.
    """

    lines: tuple[tuple[int, str], ...]
    type: str = ""
    frames: tuple[tuple[int, str], ...] = ()
    before: tuple[str, ...] = ()
    is_tensorflows: bool = False
    is_printed: bool = False

    def has_type(self, name: str) -> bool:
        """Whether the exception is of that type; of a name with dots, its module too."""
        return self.type == name or self.type.endswith(f".{name}")
