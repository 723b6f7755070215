"""The keys of the spec as published: one after another, and as a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distrun.frozen import replace
from distrun.spec.model import CLUSTER, CUSTOM_ROLE, ROLE, SPEC
from distrun.spec.restart_spec import ROLE_RESTART
from distrun.spec.schema import Key, ListOf, MappingSchema, OneOf, Schema


def reference(mapping: MappingSchema = SPEC, prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Every key and its path; the keys of a section follow the key that holds it.

    A path is dotted, with `[]` for the items of a list.
    """
    for name, key in mapping.keys.items():
        path = prefix + name
        yield path, key
        # All roles take the same keys: they are listed once, below; those of `restart`, too.
        if mapping is CLUSTER or key.schema is ROLE_RESTART:
            continue
        for inner, inner_path in _mappings(key.schema, path):
            yield from reference(inner, f"{inner_path}.")
    if mapping is CLUSTER:
        yield from reference(ROLE, f"{prefix}<role>.")
        own = {name: key for name, key in CUSTOM_ROLE.keys.items() if name not in ROLE.keys}
        yield from reference(replace(CUSTOM_ROLE, keys=own), f"{prefix}<role of your own>.")


def _mappings(schema: Schema, path: str) -> Iterator[tuple[MappingSchema, str]]:
    if isinstance(schema, MappingSchema):
        yield schema, path
    elif isinstance(schema, OneOf) and schema.mapping is not None:
        yield from _mappings(schema.mapping, path)
    elif isinstance(schema, ListOf):
        yield from _mappings(schema.item, f"{path}[]")


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
