"""`--set PATH=VALUE`: changes to a spec's nodes before it is read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Union

from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.yamlnodes import Entry, Mapping, Node, Scalar, Sequence, describe, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[([0-9]{1,6})\]")
Step = Union[str, int]


class _PathError(Exception):
    """The path leads nowhere; the message says where it ends."""


def override(root: Node, settings: Iterable[str], problems: Problems) -> Node:
    """`root` with every setting applied in order; what is wrong with one is a problem."""
    for setting in settings:
        root = _apply(root, setting, problems)
    return root


def _apply(root: Node, setting: str, problems: Problems) -> Node:
    mark = Mark(f"--set {setting}")
    path, equals, text = setting.partition("=")
    steps = _steps(path)
    if not equals or steps is None:
        problems.add(mark, "this is not PATH=VALUE", "write for example cluster.worker=4")
        return root
    value = parse(text, mark.file, problems, whole=mark)
    if value is None:
        return root
    try:
        return _placed(root, steps, value, mark, "")
    except _PathError as error:
        problems.add(mark, str(error), "set the whole of it instead")
        return root


def _steps(path: str) -> list[Step] | None:
    """`hosts[1].slots` -> ["hosts", 1, "slots"]; None where that is no path."""
    steps: list[Step] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if not match or (match[2] and not steps):
            return None
        steps.append(match[1] if match[1] else int(match[2]))
        end = match.end()
    return steps or None


def _placed(node: Node | None, steps: list[Step], value: Node, mark: Mark, path: str) -> Node:
    """`node` with `value` at the end of `steps`; keys on the way are made where missing."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        return _in_sequence(node, step, rest, value, mark, path)
    return _in_mapping(node, step, rest, value, mark, path)


def _in_mapping(
    node: Node | None, name: str, rest: list[Step], value: Node, mark: Mark, path: str
) -> Node:
    if node is None or (isinstance(node, Scalar) and node.empty):
        node = Mapping(mark, ())
    if not isinstance(node, Mapping):
        raise _PathError(f"{path} is {describe(node)}, which has no key {quoted(name)}")
    found = node.get(name)
    inner = f"{path}.{name}" if path else name
    child = _placed(found.value if found else None, rest, value, mark, inner)
    # The key is the user's own where it was there: an unknown one is said where it stands.
    entry = Entry(found.key if found else Scalar(mark, name), child)
    entries = tuple(entry if old is found else old for old in node.entries)
    return replace(node, entries=entries if found else (*entries, entry))


def _in_sequence(
    node: Node | None, index: int, rest: list[Step], value: Node, mark: Mark, path: str
) -> Node:
    if not isinstance(node, Sequence):
        raise _PathError(f"{path} is {describe(node) if node else 'not there'}, not a list")
    if index > len(node.items):
        raise _PathError(f"{path} has {len(node.items)} items, so there is no {path}[{index}]")
    old = node.items[index] if index < len(node.items) else None
    new = _placed(old, rest, value, mark, f"{path}[{index}]")
    return replace(node, items=(*node.items[:index], new, *node.items[index + 1 :]))
