"""The immutable mapping of a job's tasks, and what an event costs in a job of many tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrun.lifecycle.chunked_map import ChunkedMap

KEYS = st.sampled_from([f"k{n}" for n in range(200)])
CHANGES = st.lists(st.dictionaries(KEYS, st.integers(), max_size=150), max_size=6)


@given(changes=CHANGES)
def test_it_is_what_a_dict_would_be_and_old_versions_stay(changes: list[dict[str, int]]) -> None:
    plain: dict[str, int] = {}
    chunked: ChunkedMap[int] = ChunkedMap()
    versions = []
    for change in changes:
        versions.append((dict(plain), chunked))
        plain.update(change)
        chunked = chunked.updated(change)
        assert chunked == plain
        assert list(chunked.items()) == list(plain.items())
        assert list(reversed(chunked)) == list(reversed(plain))
        assert len(chunked) == len(plain)
    for expected, version in versions:
        assert version == expected
    assert chunked.get("other") is None
    with pytest.raises(KeyError):
        chunked["other"]
