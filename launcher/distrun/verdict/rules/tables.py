"""All tables, in the order in which they are tried."""

from __future__ import annotations

from distrun.verdict.rules import echoes, resources, setup, training

KNOWN = (
    echoes.PROXY,
    *setup.RULES,
    echoes.COLLECTIVE,
    *resources.RULES,
    *training.RULES,
    echoes.CONNECTION,
)
