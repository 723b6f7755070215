"""When a job's attempts reached their phases, in words."""

from __future__ import annotations

from collections.abc import Sequence

from distrun.job.timing import AttemptTiming, Phase, first_time
from distrun.words.causes import cause_text
from distrun.words.formats import format_count, format_duration


def timing_title(attempt: AttemptTiming) -> str:
    what = format_count(len(attempt.tasks), "task")
    if attempt.resumed:
        return f"resumed: {what}"
    if attempt.cause is None:
        return f"launched: {what}"
    return f"restarted after {cause_text(attempt.cause).partition(chr(10))[0]}: {what}"


def first_times(attempts: Sequence[AttemptTiming]) -> list[str]:
    """Return how long it took until all tasks had printed, and had done a step, at first."""
    phases = (Phase.FIRST_OUTPUT, Phase.FIRST_STEP)
    known = ((phase, first_time(attempts, phase)) for phase in phases)
    return [f"{p.words} after {format_duration(took)}" for p, took in known if took is not None]
