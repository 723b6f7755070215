"""Numbers of the spec: huge, tiny and odd ones are valid, or an error with their position."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distrun.codec import from_json, to_json
from distrun.errors import InvalidSpecError
from distrun.spec.loader import load
from distrun.spec.model import Spec
from distrun.spec.reference import json_schema

SPEC = "name: j\nstrategy: multi_worker_mirrored\ncluster: {worker: 1}\nprogram: {script: x.py}\n"
HOST = "hosts: [{name: localhost}]\n"


def paths(schema: Any, path: str = "") -> Iterator[str]:
    """The paths of all keys that have no keys below them, and of lists' first items."""
    for each in schema.get("anyOf", ()):
        yield from paths(each, path)
    for each in schema.get("patternProperties", {}).values():
        yield from paths(each, f"{path}.dispatcher")
    for name, each in schema.get("properties", {}).items():
        yield from paths(each, f"{path}.{name}".strip("."))
    if "items" in schema:
        yield from paths(schema["items"], f"{path}[0]")
    yield path


KEYS = sorted({*paths(json_schema())} - {"", "name", "vars", "hostfile"})
VALUES = [
    *("0", "-1", "-0.0", "1.5", "1e400", "-1e400", ".nan", ".inf", "9" * 400, "1" + "0" * 400),
    *("0x" + "f" * 400, "999999999TB", "999999999.999999999TiB", "9" * 400 + "TB", "-5GB"),
    *("999999999d", "999999999.999999999d", "0.000000001ms", "9" * 400 + "s", "-1s", "nan s"),
    *("010", "0o17", "1_000", "1:30", "190:20:30", "2001-01-01", "'5'", "\u0663", "[]", "{}"),
    *("9" * 5000, "1e308", "-1e308", "1e-320", "+.inf", "false", "''", "'\\ud800'", "5 s", "5S"),
    *("2147483648", "4294967296", "9223372036854775808", "true", "null", "1-999999999999"),
    *("{x: 1}", "[[]]", "[{}]", "x"),
]


@pytest.mark.parametrize("key", KEYS)
def test_a_value_is_valid_or_refused_with_its_position(tmp_path: Path, key: str) -> None:
    (tmp_path / "x.py").write_text("")
    path = tmp_path / "job.yaml"
    path.write_text(SPEC + HOST * key.startswith("hosts["))
    refusals = []
    for value in VALUES:
        try:
            spec = load(str(path), overrides=(f"{key}={value}",))
        except InvalidSpecError as error:
            refusals.append(str(error))
        else:  # a supervisor reads it again, and so does a resume
            assert from_json(Spec, json.loads(json.dumps(to_json(spec), allow_nan=False))), value
    assert refusals, "no value is odd"
    assert [each for each in refusals if re.split(r"s?[.\[]", key)[0] not in each] == []


def test_a_script_that_is_larger_than_any_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x.py").open("w") as script:
        script.truncate(1 << 40)
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    with pytest.raises(InvalidSpecError, match=r"job.yaml:4:19: .*x.py' is larger than 100 MB"):
        load(str(path))
