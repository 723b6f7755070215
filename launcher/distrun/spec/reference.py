"""Every key in words: the tables of docs/spec.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distrun.spec.flow import flow
from distrun.spec.keys import CLUSTER, ROLE, SPEC
from distrun.spec.records import Record
from distrun.spec.shapes import Forms, ListOf, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP = "Top level"


@dataclass(frozen=True, kw_only=True)
class KeyReference:
    """One key as the reference shows it; `path` is dotted, with `[]` for a list's items."""

    path: str
    type: str
    default: str
    required: bool
    description: str
    examples: tuple[Any, ...]

    @property
    def section(self) -> str:
        return self.path.partition(".")[0] if "." in self.path else ""


def reference() -> Iterator[KeyReference]:
    """Every key, each section after the key that opens it."""
    yield from _keys(SPEC, "")


def _keys(record: Record, prefix: str) -> Iterator[KeyReference]:
    for key in record.keys:
        path = prefix + key.name
        yield KeyReference(
            path=path,
            type=key.shape.words,
            default=key.default,
            required=key.required,
            description=key.says,
            examples=key.examples,
        )
        if record is CLUSTER:  # what a role's mapping takes is the same for all: told once, below
            continue
        for inner, inner_path in _records(key.shape, path):
            yield from _keys(inner, f"{inner_path}.")
    if record is CLUSTER:
        yield from _keys(ROLE, f"{prefix}<role>.")


def _records(shape: Shape, path: str) -> Iterator[tuple[Record, str]]:
    """The records inside a shape."""
    if isinstance(shape, Record):
        yield shape, path
    elif isinstance(shape, Forms) and shape.mapping is not None:
        yield from _records(shape.mapping, path)
    elif isinstance(shape, ListOf):
        yield from _records(shape.item, f"{path}[]")


def markdown_reference() -> str:
    """The reference as Markdown: one table for the top level, one for each section."""
    keys = list(reference())
    lines: list[str] = []
    for section in dict.fromkeys(key.section for key in keys):
        members = [key for key in keys if key.section == section]
        title = f"`{section}`" if section else _TOP
        lines += [
            f"## {title}",
            "",
            "| key | value | default | what it is for |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_row(key) for key in members]
        lines.append("")
    return "\n".join(lines)


def _row(key: KeyReference) -> str:
    examples = ", ".join(f"`{flow(example)}`" for example in key.examples)
    default = "required" if key.required else key.default
    cells = (f"`{key.path}`", key.type, default, f"{key.description} Example: {examples}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
