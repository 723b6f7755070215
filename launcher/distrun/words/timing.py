"""When a job's attempts reached their phases, in words."""

from __future__ import annotations

from collections.abc import Sequence

from distrun.job.timing import AttemptTiming, Phase
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
    words = []
    for phase in (Phase.FIRST_OUTPUT, Phase.FIRST_STEP):
        for attempt in attempts:
            begin, at = attempt.at(Phase.ACCEPTED), attempt.at(phase)
            if begin is not None and at is not None:
                words.append(f"{phase.value} after {format_duration(max(0.0, at - begin))}")
                break
    return words
