"""The settings of a run."""

STEPS = 3
