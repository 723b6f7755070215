"""Values that a test knows to be there, for mypy to know it as well."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """Return `value`.

    Raises:
        AssertionError: it is None.
    """
    assert value is not None
    return value
