"""Values as one would write them in a spec, for examples in messages and in the reference."""

from __future__ import annotations

from typing import Any

_SPECIAL = frozenset("[]{},:#&*!|>'\"%@`")


def flow(value: Any) -> str:
    """`value` in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    if isinstance(value, str) and _SPECIAL.isdisjoint(value):
        return value
    return f'"{value}"' if isinstance(value, str) else str(value)
