"""Frozen dataclasses to JSON and back, for what distrun keeps in files and sends to itself.

Understands dataclasses, enums, tuples, dicts with text keys, unions with None, JSON's own types,
and classes that have `to_json` and `from_json`. Fields that are missing take their defaults,
unknown ones are ignored, so that a record of another version can still be read.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from distrun.agent.protocol import Struct
from distrun.field_types import RANGES, check_fields, check_number

T = TypeVar("T")


def to_json(value: Any) -> Any:  # noqa: PLR0911 - one line a kind
    """A dataclass, or anything in one, as what `json.dumps` takes."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_json(getattr(value, each.name)) for each in _fields(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(each) for key, each in value.items()}
    return value


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of :func:`to_json`. Raises TypeError, ValueError or KeyError on other input."""
    result: T = _read(kind, value)
    return result


@functools.cache
def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:  # noqa: PLR0911 - one line a kind
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        return _read_tuple(get_args(kind), value)
    if origin is dict:
        key_kind, value_kind = get_args(kind)
        return {_read(key_kind, key): _read(value_kind, each) for key, each in value.items()}
    if hasattr(kind, "from_json"):
        found = kind.from_json(value)
        if isinstance(found, Struct):  # which takes any values
            check_fields(found)
        return found
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind(**_read_fields(_hints(kind), value))
    if isinstance(kind, type) and issubclass(kind, (Enum, str)) and kind is not str:
        return kind(value)
    if kind is float:
        return _read_float(value)
    return _read_plain(kind, value) if kind in (str, int, bool) else value


def _read_fields(hints: dict[str, Any], value: Any) -> dict[str, Any]:
    known = {name: _read(hints[name], value[name]) for name in hints if name in value}
    for name, each in known.items():
        kind = "at" if name.endswith("_at") else name
        if type(each) in (int, float) and kind in RANGES:
            check_number(each, kind)
    return known


def _read_plain(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    if kind is int:
        check_number(value)
    return value


def _read_float(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(value)


def _read_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], each) for each in value)
    return tuple(_read(kind, each) for kind, each in zip(kinds, value, strict=True))
