"""Frozen dataclasses whose classes are created fast.

The standard library generates and compiles the methods of each class, which would take a third of
the time that a command needs to start. Here they are written once for all classes. The functions of
:mod:`dataclasses` work with these classes, and type checkers see the standard library's decorator.
"""

# ruff: noqa: SLF001 - the private attributes are this module's

from __future__ import annotations

import dataclasses
from dataclasses import field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, kw_only: bool = False, order: bool = False) -> Any:  # noqa: ARG001
        """Return a decorator that makes a class a frozen dataclass."""

        def decorate(kind: type) -> type:
            dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(kind)
            fields, missing = dataclasses.fields(kind), dataclasses.MISSING
            kind._names = {each.name for each in fields}
            kind._positional = [each.name for each in fields if not each.kw_only]
            kind._defaults = {f.name: f.default for f in fields if f.default is not missing}
            factories = {f.name: f.default_factory for f in fields}
            kind._factories = [(n, make) for n, make in factories.items() if make is not missing]
            compared = [each.name for each in fields if each.compare]
            kind._key = property(attrgetter(*compared) if compared else lambda _: ())
            for name, method in _METHODS.items():
                if name not in vars(kind) and (order or name != "__lt__"):
                    setattr(kind, name, method)
            return kind

        return decorate

    class _Methods:
        def __init__(self, *args: Any, **values: Any) -> None:
            kind, state = type(self), self.__dict__
            state.update(kind._defaults)
            state.update(zip(kind._positional, args, strict=False), **values)
            for name, make in kind._factories:
                if name not in state:
                    state[name] = make()
            if state.keys() != kind._names or len(args) > len(kind._positional):
                raise TypeError(f"{kind.__name__} takes {', '.join(sorted(kind._names))}")

        def __setattr__(self, name: str, _: object = None) -> None:
            raise dataclasses.FrozenInstanceError(f"cannot change {name!r}")

        __delattr__ = __setattr__

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and self._key == other._key

        def __lt__(self, other: Any) -> bool:
            return self._key < other._key

        def __hash__(self) -> int:
            return hash(self._key)

        def __repr__(self) -> str:
            values = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
            return f"{type(self).__name__}({', '.join(values)})"

    _METHODS = {name: each for name, each in vars(_Methods).items() if callable(each)}
