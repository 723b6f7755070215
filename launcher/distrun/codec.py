"""Typed values to JSON and back, each checked by the type and the name of its field.

For what distrun keeps in files and sends to itself, and for what hosts send. Understands
dataclasses, the structures of :mod:`distrun.agent.structs`, enums, lists, tuples, dicts with text
keys, unions with None, JSON's own types, and classes that have `to_json` and `from_json`. Fields
that are missing take their defaults, unknown ones are ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from distrun.agent.protocol import Cause, Struct

JSON_VERSION = 2
"""Of what `--json` prints, see docs/json.md."""
T = TypeVar("T")
_Reader = Callable[[Any], Any]
_LATEST = 1e11
"""Unix time in seconds: the year 5138. Every C library can convert earlier ones."""
RANGES: Mapping[str, tuple[float, float]] = {
    "at": (0, _LATEST),
    "attempt": (0, 1 << 31),
    "bytes": (0, 1 << 62),
    "code": (0, 255),
    "cores": (0, 1e6),
    "cpu_seconds": (0, _LATEST),
    "errno": (-4095, 4095),
    "gpu_percent": (0, 100),
    "gpus": (0, 4095),
    "last": (0, 1 << 53),
    "lived": (0, _LATEST),
    "log_start": (0, 1 << 62),
    "number": (0, 1 << 53),
    "offset": (0, 1 << 62),
    "pid": (0, 1 << 31),
    "port": (0, 65535),
    "processes": (0, 1 << 31),
    "seconds": (-_LATEST, _LATEST),
    "signal": (0, 64),
    "status": (-255, 255),
    "chosen": (1, 65535),
    "numbers": (0, 1 << 31),
    "ports": (1, 65535),
    "rate": (0, 1e15),
}
"""The ranges of numbers by the names of their fields, or the last word of those, as `pid` for
`agent_pid`. Both ends are included. A list has its items'."""
_LARGEST = math.nextafter(math.inf, 0)
_USUAL = {int: (-(1 << 63), 1 << 63), float: (-_LARGEST, _LARGEST)}
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""No text has these. U+DC80 to U+DCFF stand for bytes that are not UTF-8."""
_LONGEST_SHOWN = 60
_LONGEST_SENT = 1 << 17
"""Characters of a text that a host may send: those of the longest environment variable."""
_LONGEST_OF_CAUSE = 4000
"""Characters of a text in a cause; the rest is cut off."""
_CUT = " ... (cut)"
_OTHER_FORM = (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What readers raise for values of other types."""


class FieldError(ValueError):
    """A field has a value that it cannot have. Says which field has what."""


def range_of(name: str) -> tuple[float, float] | None:
    """Return the range of a field that is a number; None if its name sets none."""
    return RANGES.get(name) or RANGES.get(name.rpartition("_")[2])


def to_json(value: Any) -> Any:  # noqa: PLR0911 - one line a kind
    """A dataclass or a structure, or anything in one, as what `json.dumps` takes."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Cause):  # most of its fields are empty
        return {
            name: to_json(each)
            for name, each in value._asdict().items()
            if each or (name == "status" and each is not None)
        }
    if isinstance(value, Struct) or dataclasses.is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in field_names(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(each) for key, each in value.items()}
    return value


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of :func:`to_json`. A structure may also be a list of its fields.

    Raises:
        ValueError: it is no such value. A FieldError names the field.
    """
    reader: _Reader = _reader(kind)  # type: ignore[arg-type]
    try:
        result: T = reader(value)
    except _OTHER_FORM as error:
        raise ValueError(str(error)) from error
    return result


def encode(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(to_json(value), separators=(",", ":"))


def decode(kind: type[T], text: str | bytes) -> T:
    """The inverse of :func:`encode`. Raises ValueError if the text is anything else."""
    try:
        return from_json(kind, json.loads(text))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def field_names(kind: Any) -> tuple[str, ...]:
    return tuple(kind._fields if issubclass(kind, Struct) else kind.__dataclass_fields__)


@functools.cache
def _reader(kind: Any, name: str = "", of: type = object) -> _Reader:  # noqa: C901, PLR0911 - one line a kind
    """Return what reads values of a type, those of the field with that name of a class."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (present,) = (_reader(each, name, of) for each in inner if each is not type(None))
        return lambda value: None if value is None else present(value)
    if origin is dict:
        key, item = (_reader(each, name, of) for each in inner)
        return functools.partial(_read_mapping, key, item, name)
    if origin is tuple and Ellipsis not in inner:
        readers = [_reader(each, name, of) for each in inner]
        return lambda value: tuple(r(each) for r, each in zip(readers, value, strict=True))
    if origin in (tuple, list, Sequence):
        made = tuple if origin is tuple else list
        return functools.partial(_read_items, made, _reader(inner[0], name, of), name)
    if kind in (int, float):
        low, high = range_of(name) or _USUAL[kind]
        return functools.partial(_read_number, kind, name, low, high)
    if kind is str:
        # A file may be anybody's, and is only shown; what hosts say is worked with.
        if not issubclass(of, Struct):
            return functools.partial(_read_type, kind, name)
        return functools.partial(_read_text, name, is_cut=of is Cause)
    if kind is Any or not isinstance(kind, type):
        return lambda value: value
    if hasattr(kind, "from_json"):
        return kind.from_json  # type: ignore[no-any-return]
    if issubclass(kind, Struct) or dataclasses.is_dataclass(kind):
        return functools.partial(_read_fields, kind, name)
    if issubclass(kind, (str, Enum)):
        return kind
    return functools.partial(_read_type, kind, name)


@functools.cache
def _field_readers(kind: type) -> dict[str, _Reader]:
    hints = get_type_hints(kind)
    return {name: _reader(hints[name], name, kind) for name in field_names(kind)}


def _wrong(name: str, value: Any) -> FieldError:
    shown = repr(value)[:_LONGEST_SHOWN]
    if isinstance(value, (list, tuple, dict)):
        shown = f"a {type(value).__name__} of {len(value)}"
    return FieldError(f"{name or 'a value'} is {shown}")


def _read_fields(kind: type, name: str, value: Any) -> Any:
    readers = _field_readers(kind)
    if isinstance(value, (list, tuple)) and issubclass(kind, Struct):
        if len(value) > len(readers):
            raise _wrong(name, value)
        return kind(*(read(each) for read, each in zip(readers.values(), value, strict=False)))
    if type(value) is not dict:
        raise _wrong(name, value)
    return kind(**{field: read(value[field]) for field, read in readers.items() if field in value})


def _read_mapping(key: _Reader, item: _Reader, name: str, value: Any) -> Any:
    if type(value) is not dict:
        raise _wrong(name, value)
    return {key(each): item(its) for each, its in value.items()}


def _read_items(kind: type, item: _Reader, name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name, value)
    return kind(map(item, value))


def _read_number(kind: Any, name: str, low: float, high: float, value: Any) -> Any:
    is_number = type(value) is kind or (kind is float and type(value) is int)
    if not is_number or not low <= value <= high:  # NaN neither
        raise _wrong(name, value)
    return kind(value)


def _read_text(name: str, value: Any, *, is_cut: bool) -> str:
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise _wrong(name, value)
    if is_cut and len(value) > _LONGEST_OF_CAUSE:
        return value[: _LONGEST_OF_CAUSE - len(_CUT)] + _CUT
    if len(value) > _LONGEST_SENT and name != "text":  # that of stacks
        raise _wrong(name, value)
    return value


def _read_type(kind: type, name: str, value: Any) -> Any:
    if type(value) is not kind:
        raise _wrong(name, value)
    return value
