"""Checks structures that another process sent against the types of their fields.

A :class:`~distrun.agent.structs.Struct` takes any values. Those of a message or a cause come from
another process, so they are checked before anything uses them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from distrun.agent.protocol import StrEnum, Struct

_LONGEST_TEXT = 1 << 20
"""Characters. Longer than any argument or variable of a process can be."""
_MOST_ITEMS = 1 << 20
_DEEPEST = 16
"""How many causes may be within each other."""
_LATEST = 1e11
"""Unix time in seconds: the year 5138. Every C library can convert earlier ones."""
RANGES: Mapping[str, tuple[float, float]] = {
    "agent_pid": (0, 1 << 31),
    "at": (0, _LATEST),
    "attempt": (0, 1 << 31),
    "code": (0, 255),
    "cores": (0, 1e6),
    "cpu_seconds": (0, _LATEST),
    "errno": (-4095, 4095),
    "exit_code": (0, 255),
    "gpu_memory_bytes": (0, 1 << 62),
    "gpu_percent": (0, 100),
    "gpus": (0, 4095),
    "last": (0, 1 << 53),
    "lived": (0, _LATEST),
    "log_start": (0, 1 << 62),
    "memory_bytes": (0, 1 << 62),
    "number": (0, 1 << 53),
    "offset": (0, 1 << 62),
    "peak_memory_bytes": (0, 1 << 62),
    "pid": (0, 1 << 31),
    "port": (0, 65535),
    "processes": (0, 1 << 31),
    "read_bytes": (0, 1 << 62),
    "signal": (0, 64),
    "step_at": (0, _LATEST),
    "status": (-255, 255),
    "written_bytes": (0, 1 << 62),
    "chosen": (1, 65535),
    "numbers": (0, 1 << 31),
}
"""The ranges of numbers by the names of their fields, both ends included. A list has its items'."""
_USUAL_RANGE = (-(1 << 63), 1 << 63)
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""No text has these. U+DC80 to U+DCFF stand for bytes that are not UTF-8."""
_LONGEST_SHOWN = 60


class FieldError(ValueError):
    """A field has a value that it cannot have."""


def check_fields(value: Struct) -> None:
    """Check the types, ranges and sizes of a structure's fields, and of the structures in it.

    Raises:
        FieldError: says which field has what.
    """
    _check_struct(type(value), value, 0)


def check_number(value: Any, name: str = "") -> None:
    """Check a number, which must be finite and in the range of fields with that name."""
    low, high = RANGES.get(name, _USUAL_RANGE)
    if type(value) not in (int, float) or not low <= value <= high:  # NaN neither
        raise FieldError(f"{name or 'a number'} is {_shown(value)}")


def _check_struct(kind: type[Struct], value: Any, depth: int) -> None:
    if type(value) is not kind or depth > _DEEPEST:
        raise FieldError(f"{_shown(value)} is not a {kind.__name__}")
    for name, check in _checks(kind):  # type: ignore[arg-type]
        check(getattr(value, name), depth)


@functools.cache
def _checks(kind: type[Struct]) -> list[tuple[str, Callable[[Any, int], None]]]:
    hints = get_type_hints(kind)
    return [(name, _make_check(hints[name], name)) for name in kind._fields]


def _make_check(kind: Any, name: str) -> Callable[[Any, int], None]:  # noqa: PLR0911 - one a kind
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        present = _make_check(inner[0], name)
        return lambda value, depth: None if value is None else present(value, depth)
    if origin is dict:
        return _check_mapping(_make_check(inner[0], name), _make_check(inner[1], name), name)
    if origin in (list, tuple, Sequence):
        return _check_items(_make_check(inner[0], name), name)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _check_type(kind, name)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lambda value, depth: _check_struct(kind, value, depth + 1)
    if kind is Any:
        return lambda value, _: None  # noqa: ARG005 - all checks have these parameters
    if kind is str:
        return lambda value, _: _check_text(value, name)
    if kind is int:
        return lambda value, _: _check_integer(value, name)
    if kind is float:
        return lambda value, _: check_number(value, name)
    return _check_type(kind, name)


def _check_type(kind: type, name: str) -> Callable[[Any, int], None]:
    def check(value: Any, _: int) -> None:
        if type(value) is not kind:
            raise FieldError(f"{name} is {_shown(value)}")

    return check


def _check_mapping(
    key: Callable[[Any, int], None], item: Callable[[Any, int], None], name: str
) -> Callable[[Any, int], None]:
    def check(value: Any, depth: int) -> None:
        if type(value) is not dict or len(value) > _MOST_ITEMS:
            raise FieldError(f"{name} is {_shown(value)}")
        for each, its in value.items():
            key(each, depth)
            item(its, depth)

    return check


def _check_items(item: Callable[[Any, int], None], name: str) -> Callable[[Any, int], None]:
    def check(value: Any, depth: int) -> None:
        if type(value) not in (list, tuple) or len(value) > _MOST_ITEMS:
            raise FieldError(f"{name} is {_shown(value)}")
        for each in value:
            item(each, depth)

    return check


def _check_integer(value: Any, name: str) -> None:
    if type(value) is not int:
        raise FieldError(f"{name} is {_shown(value)}")
    check_number(value, name)


def _check_text(value: Any, name: str) -> None:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or _SURROGATE.search(value):
        raise FieldError(f"{name} is {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)[:_LONGEST_SHOWN]
