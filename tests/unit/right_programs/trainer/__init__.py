"""A package that is run with `python -m trainer.main`."""

from .settings import STEPS as STEPS
