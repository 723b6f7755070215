"""The spec: a YAML file read, checked, and turned into the frozen :class:`~.model.Spec`.

Importing this package costs nothing: what reads YAML is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrun.spec.loader import load
    from distrun.spec.problems import Problem, SpecProblemsError
    from distrun.spec.reference import markdown_reference
    from distrun.spec.schema import json_schema

__all__ = ["Problem", "SpecProblemsError", "json_schema", "load", "markdown_reference"]

_HOMES = {
    "Problem": "problems",
    "SpecProblemsError": "problems",
    "json_schema": "schema",
    "load": "loader",
    "markdown_reference": "reference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
