"""What a spec can say and distrun cannot do yet; each rule goes when its feature comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrun.spec.records import Section

if TYPE_CHECKING:
    from distrun.spec.problems import Problems


_UNBUILT = (("logs", "max_size", None, "logs are not bounded yet"),)
"""Section, key, the value that asks for nothing, and what to say of any other."""


def refuse_unbuilt(document: Section, problems: Problems) -> None:
    """Add a problem for everything in the spec that would have no effect yet."""
    for name, key, nothing, what in _UNBUILT:
        section = document.get(name)
        if isinstance(section, Section) and section.get(key, nothing) != nothing:
            problems.add(section.keys[key], f"{name}.{key}: {what}", "remove it")
