"""Frozen dataclasses behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from distrun.frozen import Frozen


class Point(Frozen, order=True):
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False)


class Named(Frozen, kw_only=True):
    label: str = "none"
    name: str

    def __repr__(self) -> str:
        return self.name


class Empty(Frozen):
    """A class without fields."""


STANDARD = dataclasses.make_dataclass(
    "Point",
    [
        ("x", int),
        ("y", int, 0),
        ("tags", list[str], field(default_factory=list)),
        ("note", str, field(default="", compare=False)),
    ],
    frozen=True,
    order=True,
)


def test_the_functions_of_the_standard_library_take_it_as_a_dataclass() -> None:
    point = Point(1, note="first")

    assert dataclasses.is_dataclass(point)
    assert dataclasses.asdict(point) == {"x": 1, "y": 0, "tags": [], "note": "first"}
    assert dataclasses.replace(point, y=2) == Point(1, 2)
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "tags", "note"]


def test_values_and_text_are_those_of_a_standard_dataclass() -> None:
    for given in ({"x": 1}, {"x": 1, "y": 2, "note": "last"}, {"x": 0, "tags": ["a"]}):
        assert repr(Point(**given)) == repr(STANDARD(**given))
    assert repr(Named(name="worker")) == "worker"
    assert repr(Empty()) == "Empty()"


def test_each_instance_has_its_own_default_from_a_factory() -> None:
    assert Point(1).tags is not Point(1).tags


@pytest.mark.parametrize(
    ("args", "values"),
    [((), {}), ((1, 2, [], "", 5), {}), ((1,), {"z": 3}), ((), {"y": 3, "z": 3})],
)
def test_missing_and_unknown_fields_are_refused(args: tuple[Any, ...], values: Any) -> None:
    for kind in (Point, STANDARD):
        with pytest.raises(TypeError):
            kind(*args, **values)


def test_fields_for_keywords_alone_are_refused_by_position() -> None:
    with pytest.raises(TypeError):
        Named("worker")  # type: ignore[call-arg]


def test_fields_cannot_be_changed_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert point == Point(1)


def test_it_compares_and_hashes_by_its_compared_fields() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1) != Point(2)
    assert Point(1) != STANDARD(1)
    assert Point(1, 5) < Point(2, 0)
    assert hash(Named(name="a")) == hash(Named(name="a"))
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1
    with pytest.raises(TypeError):
        Named(name="a") < Named(name="b")  # type: ignore[operator]  # noqa: B015


def test_it_can_be_copied_and_pickled() -> None:
    point = Point(1, 2, ["a"], "last")

    for other in (copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert vars(other) == vars(point)
