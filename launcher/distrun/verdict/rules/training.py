"""What goes wrong in training itself."""

from __future__ import annotations

from distrun.verdict.model import Kind
from distrun.verdict.rules.rule import Rule

_DATA_ADVICE = (
    "every worker needs as many batches as the others: repeat() the dataset and count steps, or "
    "check how it is sharded"
)

RULES = (
    Rule(
        kind=Kind.DATA_RAN_OUT,
        cause="ran out of data",
        advice=_DATA_ADVICE,
        types=("errors_impl.OutOfRangeError", "StopIteration"),
        any_of=("End of sequence", "Input dataset is empty", "ran out of data"),
        tensorflows=("OUT_OF_RANGE", "OutOfRangeError"),
    ),
    Rule(
        kind=Kind.NOT_FINITE,
        cause="came to values that are not finite",
        advice="lower the learning rate, clip gradients, or look at the sample that did it",
        any_of=(
            "Tensor had NaN",
            "Tensor had Inf",
            "had NaN values",
            "NaN or Inf",
            "Inf and NaN",
            "NaN loss during training",
        ),
    ),
)
