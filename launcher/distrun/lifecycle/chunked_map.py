"""An immutable mapping with text keys of which a change copies only a small part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")
_CHUNK = 64


class ChunkedMap(Mapping[str, V]):
    """The values in chunks. A new version shares the unchanged chunks with the old one.

    So an event costs nearly as little in a job of 5,000 tasks as in a job of two.
    """

    __slots__ = ("_chunks", "_places")

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        items = items or {}
        values = tuple(items.values())
        starts = range(0, len(values), _CHUNK)
        self._places = {key: place for place, key in enumerate(items)}
        self._chunks = tuple(values[start : start + _CHUNK] for start in starts)

    def updated(self, changes: Mapping[str, V]) -> ChunkedMap[V]:
        """Return this mapping with values replaced; keys that it lacks are added."""
        if not changes.keys() <= self._places.keys():
            return ChunkedMap({**self, **changes})
        chunks = list(self._chunks)
        for key, value in changes.items():
            at, index = divmod(self._places[key], _CHUNK)
            chunk = list(chunks[at])
            chunk[index] = value
            chunks[at] = tuple(chunk)
        changed: ChunkedMap[V] = object.__new__(ChunkedMap)
        changed._places = self._places
        changed._chunks = tuple(chunks)
        return changed

    def __getitem__(self, key: str) -> V:
        at, index = divmod(self._places[key], _CHUNK)
        return self._chunks[at][index]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._places)

    def __len__(self) -> int:
        return len(self._places)
