"""Frozen dataclasses behave like those of the standard library."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import pytest

from distrun.frozen import Frozen


class Point(Frozen):
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
    assert hash(Named(name="a")) == hash(Named(name="a"))
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1
    with pytest.raises(TypeError):
        Named(name="a") < Named(name="b")  # type: ignore[operator]  # noqa: B015
