"""The JSON Schema says everything there is to say."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from distrun.spec.model import (
    HostSpec,
    ProgramSpec,
    RestartSpec,
    Spec,
    SshSpec,
    Timeouts,
)
from distrun.spec.problems import Mark, Problems
from distrun.spec.reference import json_schema
from distrun.spec.schedulers import SlurmSpec
from distrun.spec.schema import keys_of
from distrun.spec.yamlnodes import parse

if TYPE_CHECKING:
    from collections.abc import Iterator


def _properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from _properties(inner, f"{path}.{name}")
    for inner in schema.get("anyOf", []):
        yield from _properties(inner, path)
    if isinstance(schema.get("items"), dict):
        yield from _properties(schema["items"], f"{path}[]")


@pytest.mark.parametrize(("path", "schema"), [*_properties(json_schema())])
def test_every_key_is_explained_by_examples_that_it_accepts(
    path: str, schema: dict[str, Any]
) -> None:
    assert schema["description"].endswith("."), path
    assert schema["examples"], path
    for example in schema["examples"]:
        jsonschema.Draft202012Validator(schema).validate(example)


def test_every_section_refuses_unknown_keys() -> None:
    def closed(schema: dict[str, Any]) -> bool:
        return "properties" not in schema or schema["additionalProperties"] is False

    assert all(
        closed(form)
        for _, schema in [("", json_schema()), *_properties(json_schema())]
        for form in [schema, *schema.get("anyOf", [])]
    )


@pytest.mark.parametrize(
    "kind",
    [HostSpec, ProgramSpec, RestartSpec, SlurmSpec, Spec, SshSpec, Timeouts],
)
def test_every_default_in_the_reference_is_what_the_key_reads_as(kind: type) -> None:
    defaults = {each.name: each.default for each in dataclasses.fields(kind)}
    for name, key in keys_of(kind).items():
        if key.default[:2] in ("`[", "`{") or not key.default.startswith("`"):
            continue
        if defaults.get(name) in (None, dataclasses.MISSING):
            continue
        problems = Problems()
        node = parse(key.default.strip("`"), "", problems, whole=Mark(""))
        assert node is not None
        read = key.schema.read(node, name, problems)
        assert problems or read == defaults[name], name


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"strategy": "mirrored"},
        {"strategy": "mirorred", "program": {"script": "a"}},
        {"strategy": "mirrored", "program": {"script": "a", "module": "b"}},
        {"strategy": "mirrored", "program": {"command": "ls -l"}},
        {"strategy": "mirrored", "program": {"script": "a"}, "nam": "x"},
        {"strategy": "mirrored", "program": {"script": "a"}, "timeouts": {"grace": "10"}},
        {"strategy": "mirrored", "program": {"script": "a"}, "timeouts": {"grace": "off"}},
        {"strategy": "mirrored", "program": {"script": "a"}, "cluster": {"worker": ["localhost"]}},
        {"strategy": "mirrored", "program": {"script": "a", "env": {"DISTRUN_X": "1"}}},
    ],
)
def test_an_editor_sees_what_is_plainly_wrong(document: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document)
