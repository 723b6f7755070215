"""The spec: a YAML file that is read, checked, and turned into the frozen :class:`~.model.Spec`.

Importing this package is cheap and pure: its modules are imported when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrun.spec.loader import load
    from distrun.spec.problems import Problem, SpecProblemsError
    from distrun.spec.reference import json_schema, markdown_reference

__all__ = ["Problem", "SpecProblemsError", "json_schema", "load", "markdown_reference"]

_MODULES = {
    "Problem": "problems",
    "SpecProblemsError": "problems",
    "json_schema": "reference",
    "load": "loader",
    "markdown_reference": "reference",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
