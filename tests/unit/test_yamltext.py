"""What `distrun run` writes as YAML is read as the same nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence
from distrun.spec.problems import Mark, Problems
from distrun.spec.yamlnodes import parse
from distrun.spec.yamltext import yaml_text

HERE = Mark("here")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ODD = st.sampled_from(
    [
        *("", "~", "null", "off", "0o17", "1:30", "-", "- a", "a: b", " x ", "#", "'", '"', "\\"),
        *("\t", "\r", "\x85", "\u2028", "\ufeff", "\x00", "\n\n a\n", "a" * 300, "word " * 60),
        *("${HOME}", "[", "!!x"),
    ]
)


def scalar(text: str) -> Scalar:
    return Scalar(HERE, text, plain=type(Scalar(HERE, text).value) in (str, int, float))


def mapping(values: dict[str, Node]) -> Mapping:
    return Mapping(HERE, tuple(Entry(scalar(key), value) for key, value in values.items()))


SCALARS: st.SearchStrategy[Node] = (TEXTS | ODD | st.integers().map(str)).map(scalar)
LISTS: st.SearchStrategy[Node] = st.lists(SCALARS, max_size=5).map(
    lambda items: Sequence(HERE, tuple(items))
)
MAPPINGS = st.dictionaries(TEXTS | ODD, SCALARS | LISTS, max_size=4).map(mapping)


def texts(node: Node | None) -> object:
    """The node without marks and quotes; a text stays distinct from a number."""
    if isinstance(node, Sequence):
        return [texts(item) for item in node.items]
    if isinstance(node, Mapping):
        return {entry.key.text: texts(entry.value) for entry in node.entries}
    assert node is not None
    return node.text, type(node.value)


@given(st.dictionaries(TEXTS, SCALARS | LISTS | MAPPINGS, min_size=1, max_size=4).map(mapping))
def test_what_is_written_is_read_again(root: Mapping) -> None:
    problems = Problems()
    again = parse(yaml_text(root), "again.yaml", problems)
    assert not problems, problems.error()
    assert texts(again) == texts(root)
