"""What makes a job slow, as a sentence: with its number, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.advice.rules import Symptom

if TYPE_CHECKING:
    from distrun.advice.rules import Advice

_TEXTS = {
    Symptom.BEHIND: (
        "{task} is behind: it takes {amount:.2g} steps a second, the others {usual:.2g}; to see "
        "why while it runs: distrun profile {job}"
    ),
    Symptom.RETRACING: (
        "{task} makes a new graph at {amount:.0f} calls in a row of {name} (retracing): pass it "
        "tensors instead of Python numbers, batches of one shape, and define it once"
    ),
    Symptom.IDLE: (
        "no task uses more than {amount:.2f} of a core, though they take steps; to see what they "
        "wait for while they run: distrun profile {job}"
    ),
}


def advice_text(advice: Advice, job: str) -> str:
    """Say what costs a job of that name much of its time."""
    return _TEXTS[advice.symptom].format(
        task=advice.task,
        amount=advice.amount,
        usual=advice.usual,
        name=advice.name,
        job=job,
    )
