"""Writes YAML: nodes, which :mod:`.yamlnodes` reads as the same nodes, and plain values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from distrun.spec.nodes import Mapping, Node, Scalar, Sequence

_WIDTH = 100
_LINE_BREAKS = frozenset("\n\r\x85\u2028\u2029")
"""They would be folded outside double quotes."""
_READ_OTHERWISE = re.compile(
    r"[-+]?(?:\.[0-9_]+|[0-9][0-9_]*\.?[0-9_]*)(?:[eE][-+]?[0-9_]+)?"
    r"|[-+]?0[bBoOxX][0-9a-fA-F_]+|[yYnN]"
)
"""Texts that PyYAML writes without quotes, and that YAML 1.2 or kubectl reads as other values."""


def yaml_text(root: Node) -> str:
    """Return a document. Mappings take a line for each key; lists and what is in them take one."""
    events = (
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(root, is_flow=False),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    )
    text: str = yaml.emit(events, allow_unicode=True, width=_WIDTH)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _READ_OTHERWISE.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _events(node: Node, *, is_flow: bool) -> Iterator[Any]:
    if isinstance(node, Scalar):
        style = '"' if _LINE_BREAKS & set(node.text) else None
        yield yaml.ScalarEvent(None, None, (node.plain, True), node.text, style=style)
    elif isinstance(node, Sequence):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=True)
        for item in node.items:
            yield from _events(item, is_flow=True)
        yield yaml.SequenceEndEvent()
    elif isinstance(node, Mapping):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=is_flow)
        for entry in node.entries:
            yield from _events(entry.key, is_flow=is_flow)
            yield from _events(entry.value, is_flow=is_flow)
        yield yaml.MappingEndEvent()
