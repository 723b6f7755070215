"""The topics that `explain` explains besides keys, such as kinds of verdicts: in Markdown."""

from __future__ import annotations

import functools

from distrun.agent.protocol.causes import Cause, Code
from distrun.tables import read_rows
from distrun.words.causes import cause_advice


@functools.cache
def topics(section: str) -> dict[str, tuple[str, str]]:
    """Return the topics of a section of the table: how each looks, and what to do about it."""
    rows = [row.split(" | ") for row in read_rows(__spec__, "explained.txt")]
    return {name: (looks, _advice(*to_do)) for its, name, looks, *to_do in rows if its == section}


def _advice(words: str = "") -> str:
    if words not in {*Code}:
        return words
    example = Cause(Code(words), task="worker:1", hosts=("gpu1",), commands=("ssh HOST",), signal=9)
    return cause_advice(example) or ""
