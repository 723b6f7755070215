"""A verdict in lines: the first cause, the lines it rests on, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrun.verdict.model import Verdict

_UNTOLD = "other"


def verdict_lines(verdict: Verdict) -> list[str]:
    """What follows the headline in a report, and in `status`."""
    if _is_told(verdict):
        return []
    return [f"  cause  {verdict.cause} ({verdict.kind.value})", *grounds(verdict)]


def grounds(verdict: Verdict) -> list[str]:
    """The lines that it rests on, and the advice."""
    if _is_told(verdict):
        return []
    lines = []
    # What distrun itself ended a job for is its own evidence.
    for evidence in (each for each in verdict.evidence if each.text != verdict.cause):
        whose = f"{evidence.task}, " if evidence.task else ""
        lines.append(f"  seen   {whose}{evidence.place}: {evidence.text}")
    if verdict.advice:
        lines.append(f"  do     {verdict.advice}")
    return lines


def _is_told(verdict: Verdict) -> bool:
    """Whether it is distrun's own words and no more, which stand above it already."""
    return verdict.task is None and verdict.kind.value == _UNTOLD
