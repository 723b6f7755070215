"""Immutable records with named fields: what `typing.NamedTuple` is, its classes made faster.

An agent has dozens of kinds of messages and starts on every host of a job; making a NamedTuple of
each would take a third of the time that it needs to start.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Dict

__all__ = ["Record"]

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:

    class Record(tuple):
        """A base class; the annotations of a class below it are its fields, in their order."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            own = dict(cls.__dict__)
            cls._fields = tuple(own.get("__annotations__", ()))
            cls._defaults = {each: own[each] for each in cls._fields if each in own}
            for index, each in enumerate(cls._fields):
                setattr(cls, each, property(itemgetter(index)))

        def __new__(cls, *values: Any, **named: Any) -> Record:  # noqa: PYI034 - Self is 3.11's
            missing = cls._fields[len(values) :]
            if named or missing:
                rest = {**cls._defaults, **named}
                values += tuple(rest[each] for each in missing if each in rest)
            if len(values) != len(cls._fields) or not named.keys() <= set(missing):
                raise TypeError("{} takes {}".format(cls.__name__, ", ".join(cls._fields)))
            return tuple.__new__(cls, values)

        def __repr__(self) -> str:
            fields = ("{}={!r}".format(*each) for each in self._asdict().items())
            return "{}({})".format(type(self).__name__, ", ".join(fields))

        def _asdict(self) -> Dict[str, Any]:
            return dict(zip(self._fields, self))  # noqa: B905 - strict is 3.10's

        def _replace(self, **changes: Any) -> Record:
            return type(self)(**{**self._asdict(), **changes})
