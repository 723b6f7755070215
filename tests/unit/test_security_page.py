"""Each sentence of docs/security.md has a test that shows it, or a reason why there is none.

security_statements.txt has an entry for each: the sentence, and below it the tests, or the reason.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
_ENTRIES = Path(__file__).with_name("security_statements.txt").read_text().strip().split("\n\n")
SHOWN_BY = {each.splitlines()[0]: each.splitlines()[1:] for each in _ENTRIES}
"""By statement."""
UNTESTED = "untested: "


def statements(page: str) -> list[str]:
    """The sentences of the paragraphs and list items, and the rows of the tables."""
    found: list[str] = []
    for block in re.split(r"\n\n|\n(?=- )", page.replace("**", "")):
        if block.startswith("|"):
            found += block.strip().splitlines()[2:]  # below the head
        elif not block.startswith("#"):
            text = " ".join(block.removeprefix("- ").split())
            found += re.split(r"(?<=[.:]) (?=[A-Z`*\[])", text)
    return [each for each in found if each]


@functools.cache
def names_in(path: str) -> set[str]:
    """The names of a file's tests, those in classes as `Class::test`."""
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            inner = [node.name for node in each.body if isinstance(node, ast.FunctionDef)]
            found.update(f"{each.name}::{name}" for name in inner)
    return found


def test_each_statement_has_an_entry_and_each_entry_a_statement() -> None:
    stated = statements(PAGE)
    assert len(stated) == len(set(stated))
    assert len(SHOWN_BY) == len(_ENTRIES)
    assert [each for each in stated if each not in SHOWN_BY] == [], "without an entry"
    assert [each for each in SHOWN_BY if each not in stated] == [], "not on the page"


@pytest.mark.parametrize("statement", SHOWN_BY, ids=lambda statement: statement[:50])
def test_what_shows_a_statement_exists(statement: str) -> None:
    lines = SHOWN_BY[statement]
    assert lines
    if lines[0].startswith(UNTESTED):
        assert len(lines) == 1
        assert len(lines[0].removeprefix(UNTESTED).split()) >= 4
        return
    for node_id in lines:
        path, _, name = node_id.partition("::")
        assert name.rpartition("::")[2].startswith("test_"), node_id
        assert name in names_in(path), node_id


def test_a_statement_that_is_added_has_no_entry_yet() -> None:
    page = PAGE.replace(
        "\n## TensorFlow", "\nA new promise. And another:\n\n- a third;\n\n## TensorFlow"
    )
    added = [each for each in statements(page) if each not in SHOWN_BY]
    assert added == ["A new promise.", "And another:", "a third;"]
