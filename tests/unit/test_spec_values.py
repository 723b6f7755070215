"""Scalars by the core schema of YAML 1.2; durations and sizes."""

import math

import pytest

from harness.parts.nodes import Scalar, parse
from harness.parts.spec import Problems, units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"), ("on", "on"), ("yes", "yes"), ("No", "No"), ("y", "y"),
        ("true", True), ("True", True), ("TRUE", True), ("tRUE", "tRUE"), ("false", False),
        ("null", None), ("Null", None), ("~", None), ("", None), ("nULL", "nULL"),
        ("1", 1), ("-1", -1), ("+1", 1), ("010", 10), ("0o17", 15), ("0x1F", 31),
        ("0b11", "0b11"), ("1_000", "1_000"), ("1:30", "1:30"), ("0o9", "0o9"),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-1", -0.15),
        (".inf", math.inf), ("-.INF", -math.inf), ("inf", "inf"), ("1" + "0" * 400, math.inf),
        ("2024-01-01", "2024-01-01"), ("=", "="), ("<<", "<<"), ("'1'", "1"), ('"true"', "true"),
    ],
)  # fmt: skip
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    node = parse(text, "f", Problems())

    assert isinstance(node, Scalar)
    assert node.value == value
    assert type(node.value) is type(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("10s", 10.0), ("5m", 300.0), ("1h", 3600.0), ("1.5s", 1.5), ("0s", 0.0),
        ("10", None), ("10 s", None), ("1h30m", None), ("-1s", None), (".5s", None),
        ("2d", 172800.0), ("1w", None), ("\u0661s", None), ("1s\n", None),
    ],
)  # fmt: skip
def test_a_duration(text: str, seconds: float | None) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1B", 1), ("100MB", 10**8), ("1GiB", 2**30), ("1.5KiB", 1536), ("2KB", 2000),
        ("1", None), ("1mb", None), ("1 MB", None),
    ],
)  # fmt: skip
def test_a_size(text: str, count: int | None) -> None:
    assert units.parse_size(text) == count
