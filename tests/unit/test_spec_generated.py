"""Whatever is valid loads and the JSON Schema accepts it; whatever is not is told, in time."""

import dataclasses
import json
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.examples import examples
from harness.parts.nodes import (
    MAX_BYTES,
    Entry,
    Mapping,
    Node,
    Scalar,
    Sequence,
    keys_of,
    parse,
    yaml_text,
)
from harness.parts.settings import HostSpec, RestartSpec, SlurmSpec, SshSpec, json_schema, templates
from harness.parts.spec import Mark, Problems, ProgramSpec, Spec, SpecProblemsError, Timeouts
from harness.parts.top import InvalidSpecError, from_json, to_json
from harness.specs import load_text, refusal

from .test_spec_load import EVERYTHING, SMALL

FEW = settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ENVIRON = {"PATH": "/bin", "TOKEN": "secret"}


def _values(node: Node | None) -> Any:
    if isinstance(node, Mapping):
        return {entry.key.text: _values(entry.value) for entry in node.entries}
    if isinstance(node, Sequence):
        return [_values(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


TEXTS = {
    "everything": EVERYTHING, "small": SMALL,
    **{name: path.read_text() for name, path in templates().items()},
}  # fmt: skip
DOCUMENTS = {name: _values(parse(text, name, Problems())) for name, text in TEXTS.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("train", *templates()):
        (tmp_path / f"{name}.py").touch()
    return tmp_path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_valid_document_loads_in_any_style_and_fits_the_schema(folder: Path, name: str) -> None:
    document = DOCUMENTS[name]
    jsonschema.Draft202012Validator(json_schema()).validate(document)
    # JSON is YAML with nothing left to interpret, here with YAML's escapes.
    odd = re.compile("[^\x20-\x7e\xa1-\u02ff\U00010000-\U0010ffff]")
    text = odd.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(document, ensure_ascii=False)
    )
    spec = load_text(folder, text.encode(), environ=ENVIRON)
    assert spec.strategy == document["strategy"]
    block = yaml.safe_dump(document, default_flow_style=False, width=1000, sort_keys=False)
    assert load_text(folder, block, environ=ENVIRON) == spec


def _only_problems(folder: Path, content: bytes) -> None:
    """Loading ends well or with problems that have positions; nothing else may be raised."""
    try:
        load_text(folder, content, environ=ENVIRON)
    except SpecProblemsError as raised:
        error = raised
    else:
        return
    assert error.problems
    for problem in error.problems:
        assert problem.message
        assert problem.line is not None
        assert problem.line >= 1
        assert str(problem).replace("\n", "").isprintable()  # a line of the file and a caret


YAML_PIECES = st.lists(
    st.sampled_from([
        "strategy", "cluster", "worker", "program", "script", "hosts", "env", "ports", "range",
        "mirrored", "2", ": ", ":", "- ", "-", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",",
        '"', "'", "|", ">", "&a ", "*a", "!!str ", "!", "#", "? ", "---\n", "...\n", "~", "%TAG",
        "\t", "<<", "localhost:1", "off", "0x1f", ".nan", "\\x00", "\u00e9",
    ]),
    max_size=40,
).map("".join)  # fmt: skip


@FEW
@given(content=st.binary(max_size=300) | YAML_PIECES.map(str.encode))
@example(b"\xff\xfe\x00")
@example(b"\0")
@example(b"a: &a [*a]")
@example(b"? [a]\n: b")
@example(b"%YAML 9.9\n---\na: b")
@example(b'name: "\\U00110000"')
@example(b'name: "\\ud800"')
@example(b"!!python/object/apply:os.system [ls]")
@example(b"strategy: 1" + b"0" * 5000)
@example(b"timeouts: {grace: " + b"9" * 5000 + b"s}")
@example("name: \u2028\x85".encode())
@example(
    b'{"strategy": "default", "program": {"script": "t.py", "pass_env": ["A\\u0085\\u001b[2J"]}}'
)
def test_no_bytes_make_a_traceback(folder: Path, content: bytes) -> None:
    _only_problems(folder, content)


FULL = MAX_BYTES - 100
HOSTILE = {
    "laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 112)
    ),
    "deep flow": b"a: " + b"[" * FULL, "one key": b"a" * FULL + b": 1",
    "unclosed": b'name: "' + b"a\n" * (FULL // 2), "complex keys": b"? " * (FULL // 2),
    "anchors": b"".join(b"k%d: &a%d 1\n" % (n, n) for n in range(FULL // 20)),
    "tags": b"[" + b"!!x 1, " * (FULL // 100) + b"]",
    "hosts": b"strategy: mirrored\nhosts:\n" + b"- a[1-4096]\n" * 4000,
    "brackets": b"hosts: ['" + b"[1]" * (FULL // 3) + b"']",
    "same addresses": b"cluster:\n  worker:\n" + b"  - localhost:1\n" * 9_000,
    "wrong args": b"program:\n  args: [" + b"[]," * 10_000 + b"]",
    "env": b"program:\n  env:\n" + b"".join(b"    DISTRUN_%d: 1\n" % n for n in range(5_000)),
    "unknown keys": b"".join(b"key_%d: 1\n" % n for n in range(17_000)),
    "unknown keys of hosts": b"hosts:\n" + b"- {name: a, keys: 1}\n" * 4_000,
    "roles in a row, after unknown ones": b"strategy: mirrored\ncluster:\n"
    + b"".join(b"  r%d: {script: a, after: [r%d, x]}\n" % (n + 1, n) for n in range(2_000)),
    "digits": b"program: {command: [" + b"1" * FULL + b"]}",
    "too large": b"#" * (MAX_BYTES * 20),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_told_in_time_and_memory(folder: Path, content: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()  # what others do on this machine is not its fault

    _only_problems(folder, content)

    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


# What `distrun run` writes ------------------------------------------------------------------------


HERE = Mark("here")
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ODD = st.sampled_from(
    [
        *("", "~", "null", "off", "0o17", "1:30", "-", "- a", "a: b", " x ", "#", "'", '"', "\\"),
        *("\t", "\r", "\x85", "\u2028", "\ufeff", "\x00", "\n\n a\n", "a" * 300, "word " * 60),
        *("${HOME}", "[", "!!x"),
    ]
)


def scalar(text: str) -> Scalar:
    return Scalar(HERE, text, plain=type(Scalar(HERE, text).value) in (str, int, float))


def mapping(values: dict[str, Node]) -> Mapping:
    return Mapping(HERE, tuple(Entry(scalar(key), value) for key, value in values.items()))


SCALARS: st.SearchStrategy[Node] = (WORDS | ODD | st.integers().map(str)).map(scalar)
LISTS: st.SearchStrategy[Node] = st.lists(SCALARS, max_size=5).map(
    lambda items: Sequence(HERE, tuple(items))
)
MAPPINGS = st.dictionaries(WORDS | ODD, SCALARS | LISTS, max_size=4).map(mapping)


def texts(node: Node | None) -> object:
    """The node without marks and quotes; a text stays distinct from a number."""
    if isinstance(node, Sequence):
        return [texts(item) for item in node.items]
    if isinstance(node, Mapping):
        return {entry.key.text: texts(entry.value) for entry in node.entries}
    assert node is not None
    return node.text, type(node.value)


@given(st.dictionaries(WORDS, SCALARS | LISTS | MAPPINGS, min_size=1, max_size=4).map(mapping))
def test_what_is_written_is_read_again(root: Mapping) -> None:
    problems = Problems()
    again = parse(yaml_text(root), "again.yaml", problems)
    assert not problems, problems.error()
    assert texts(again) == texts(root)


# The JSON Schema ----------------------------------------------------------------------------------


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas of all keys, and of lists' first items, with their paths."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from parts(each, f"{path}.{name}".strip("."))
    for each in schema.get("patternProperties", {}).values():
        yield from parts(each, f"{path}.dispatcher")
    for each in schema.get("anyOf", ()):
        yield from parts(each, path)
    if isinstance(schema.get("items"), dict):
        yield from parts(schema["items"], f"{path}[0]")


def test_every_key_is_explained_by_examples_that_it_accepts() -> None:
    for section in (each for _, each in parts(json_schema())):
        for name, schema in section.get("properties", {}).items():
            assert schema["description"].endswith("."), name
            assert schema["examples"], name
            for each in schema["examples"]:
                jsonschema.Draft202012Validator(schema).validate(each)


def test_the_schema_accepts_variables_in_a_role_of_ones_own() -> None:
    own = {"script": "${SCRIPT}", "count": "${COUNT}", "ready": {"line": "${LINE}"}}
    document = {"strategy": "mirrored", "program": {"script": "x"}, "cluster": {"own": own}}
    jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_every_section_refuses_unknown_keys() -> None:
    sections = [each for _, each in parts(json_schema()) if "properties" in each]
    assert all(each["additionalProperties"] is False for each in sections)


@pytest.mark.parametrize(
    "kind", [HostSpec, ProgramSpec, RestartSpec, SlurmSpec, Spec, SshSpec, Timeouts]
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


# Numbers ------------------------------------------------------------------------------------------


SPEC = "name: j\nstrategy: multi_worker_mirrored\ncluster: {worker: 1}\nprogram: {script: x.py}\n"


LIKE_OTHERS = (
    *("cluster.chief", "cluster.evaluator.", "cluster.ps", "cluster.dispatcher."),
    *("cluster.worker.restart.", "slurm.account", "slurm.qos", "kubernetes.queue"),
)
"""Read as a worker's, or as others of their section. The evaluator itself takes no addresses."""
KEYS = sorted(dict(parts(json_schema())).keys() - {"", "name", "vars", "hostfile"})
KEYS = [key for key in KEYS if not key.startswith(LIKE_OTHERS)]
VALUES = [
    *("0", "-1", "-0.0", "1.5", "1e400", ".nan", "-.inf", "9" * 400, "0x" + "f" * 400, "9" * 5000),
    *("999999999.999999999TiB", "9" * 400 + "TB", "-5GB", "999999999d", "0.000000001ms", "-1s"),
    *("010", "1:30", "2001-01-01", "'5'", "\u0663", "[]", "{}", "1e-320", "false", "''"),
    *("'\\ud800'", "2147483648", "9223372036854775808", "null", "1-999999999999"),
    *("{x: 1}", "[[]]", "x"),
]


@pytest.mark.parametrize("key", KEYS)
def test_a_value_is_valid_or_refused_with_its_position(tmp_path: Path, key: str) -> None:
    (tmp_path / "x.py").write_text("")
    text = SPEC + "hosts: [{name: localhost}]\n" * key.startswith("hosts[")
    refusals = []
    for value in VALUES[KEYS.index(key) % 2 :: 2]:  # neighbours have the same readers
        try:
            spec = load_text(tmp_path, text, overrides=(f"{key}={value}",))
        except InvalidSpecError as error:
            refusals.append(str(error))
        else:  # a supervisor reads it again, and so does a resume
            assert from_json(Spec, json.loads(json.dumps(to_json(spec), allow_nan=False))), value
    assert refusals, "no value is odd"
    assert [each for each in refusals if re.split(r"s?[.\[]", key)[0] not in each] == []


def test_a_script_that_is_larger_than_any_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x.py").open("w") as script:
        script.truncate(1 << 40)
    assert re.match(r"job.yaml:4:19: .*x.py' is larger than 100 MB", str(refusal(tmp_path, SPEC)))
