"""Calls that all tasks must make, in the text of a program that makes them under a condition."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_ONE = re.compile(
    r"chief|rank|task|worker|index|main_?process|leader|master|is_first", re.IGNORECASE
)
_OF_ALL = {
    *("fit", "evaluate", "predict", "save", "save_weights", "train_on_batch", "test_on_batch"),
    *("reduce", "all_reduce", "gather", "all_gather", "merge_call"),
}


def find_lone_call(text: str) -> str:
    """Return the line of such a call and its name, as `12 calls evaluate`; empty if there is none.

    A call that both branches make is not one.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    for each in ast.walk(tree):
        if isinstance(each, ast.If) and _OF_ONE.search(ast.unparse(each.test)):
            here, there = dict(_calls(each.body)), dict(_calls(each.orelse))
            lone = [(line, name) for name, line in (here | there).items()
                    if (name in here) != (name in there)]  # fmt: skip
            if lone:
                return "{} calls {}".format(*min(lone))
    return ""


def _calls(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    for statement in body:
        for each in ast.walk(statement):
            called = each.func if isinstance(each, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in _OF_ALL:
                yield called.attr, called.lineno
