"""Immutable structures with named fields, and enumerations, whose classes are created fast.

The agent has dozens of kinds of messages and starts on every host of a job. Creating a
`typing.NamedTuple` for each would take a third of its start, and an Enum of 200 members as long. So
for type checkers these are a frozen dataclass and an Enum, at run time a plain tuple and a string.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Iterator, Tuple

__all__ = ["Generic", "StrEnum", "Struct"]

if TYPE_CHECKING:
    from enum import Enum
    from typing import Generic

    from typing_extensions import Self, dataclass_transform

    @dataclass_transform(frozen_default=True)
    class Struct:
        """The annotations of a subclass are its fields, in that order."""

        _fields: ClassVar[Tuple[str, ...]]

        def _asdict(self) -> Dict[str, Any]: ...

        def _replace(self, **changes: Any) -> Self: ...

    class StrEnum(str, Enum):
        """Each member's value is its name in lower case."""

else:

    class Generic:
        """`typing.Generic` without effect: that module takes a tenth of an agent's start."""

        def __class_getitem__(cls, _: object) -> type:
            return cls

    class Struct(tuple):
        """The annotations of a subclass are its fields, in that order."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            own = dict(cls.__dict__)
            annotations = own.get("__annotations__", {})
            cls._fields = tuple(
                each for each, kind in annotations.items() if not kind.startswith("ClassVar")
            )
            cls._defaults = {each: own[each] for each in cls._fields if each in own}
            for index, each in enumerate(cls._fields):
                setattr(cls, each, property(itemgetter(index)))

        def __new__(cls, *values: Any, **named: Any) -> Struct:  # noqa: PYI034 - Self is 3.11's
            missing = cls._fields[len(values) :]
            if named or missing:
                rest = {**cls._defaults, **named}
                values += tuple(rest[each] for each in missing if each in rest)
            if len(values) != len(cls._fields) or not named.keys() <= set(missing):
                raise TypeError("{} takes {}".format(cls.__name__, ", ".join(cls._fields)))
            return tuple.__new__(cls, values)

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and tuple.__eq__(self, other)

        __hash__ = tuple.__hash__

        def __repr__(self) -> str:
            fields = ("{}={!r}".format(*each) for each in self._asdict().items())
            return "{}({})".format(type(self).__name__, ", ".join(fields))

        def _asdict(self) -> Dict[str, Any]:
            return dict(zip(self._fields, self))  # noqa: B905 - strict is 3.10's

        def _replace(self, **changes: Any) -> Struct:
            return type(self)(**{**self._asdict(), **changes})

    class _EnumType(type):
        def __iter__(cls) -> Iterator[StrEnum]:
            return iter(cls._members.values())

    class StrEnum(str, metaclass=_EnumType):
        """Each member's value is its name in lower case."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            # By the names alone: hosts are sent the members without their values.
            names = [name for name in cls.__dict__ if name.isupper()]
            cls._members = {name.lower(): str.__new__(cls, name.lower()) for name in names}
            for value, member in cls._members.items():
                setattr(cls, value.upper(), member)

        def __new__(cls, value: str) -> StrEnum:  # noqa: PYI034 - Self is 3.11's
            if value not in cls._members:
                raise ValueError("{!r} is not a valid {}".format(value, cls.__name__))
            return cls._members[value]

        @property
        def name(self) -> str:
            return self.upper()

        @property
        def value(self) -> str:
            return str(self)
