"""The keys of the spec as published: the tables of docs/spec.md, and the JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distrun.spec.keys import CLUSTER, ROLE, SPEC
from distrun.spec.schema import ListOf, MappingSchema, OneOf, Schema
from distrun.spec.yamlnodes import flow_style

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP = "Top level"


@dataclass(frozen=True, kw_only=True)
class KeyReference:
    """One key in the reference. `path` is dotted, with `[]` for the items of a list."""

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
    """Every key; the keys of a section follow the key that holds it."""
    yield from _keys(SPEC, "")


def _keys(mapping: MappingSchema, prefix: str) -> Iterator[KeyReference]:
    for key in mapping.keys:
        path = prefix + key.name
        yield KeyReference(
            path=path,
            type=key.schema.expected,
            default=key.default,
            required=key.required,
            description=key.help,
            examples=key.examples,
        )
        if mapping is CLUSTER:  # all roles take the same keys: they are listed once, below
            continue
        for inner, inner_path in _mappings(key.schema, path):
            yield from _keys(inner, f"{inner_path}.")
    if mapping is CLUSTER:
        yield from _keys(ROLE, f"{prefix}<role>.")


def _mappings(schema: Schema, path: str) -> Iterator[tuple[MappingSchema, str]]:
    """The schemas of mappings in a schema, each with its path."""
    if isinstance(schema, MappingSchema):
        yield schema, path
    elif isinstance(schema, OneOf) and schema.mapping is not None:
        yield from _mappings(schema.mapping, path)
    elif isinstance(schema, ListOf):
        yield from _mappings(schema.item, f"{path}[]")


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
    examples = ", ".join(f"`{flow_style(example)}`" for example in key.examples)
    default = "required" if key.required else key.default
    cells = (f"`{key.path}`", key.type, default, f"{key.description} Example: {examples}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def json_schema() -> dict[str, Any]:
    """The spec's JSON Schema (draft 2020-12).

    It accepts every valid spec and describes every key to an editor. It does not have the rules
    that span several keys, such as the roles that a strategy needs: the loader checks those.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "distrun spec",
        "description": "A multi-worker TensorFlow job, as `distrun launch` runs it.",
        **SPEC.json_schema(),
    }
