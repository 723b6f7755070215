"""Applies `--set PATH=VALUE` to the nodes of a spec before it is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from distrun.frozen import Frozen, replace
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence, describe
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.yamlnodes import MAX_DEPTH, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[([0-9]{1,6})\]")
Step: TypeAlias = str | int


class _PathError(Exception):
    """The path cannot be followed. The message says where it ends."""


def override(root: Node, settings: Iterable[str], problems: Problems) -> Node:
    """`root` with every setting applied in order. Invalid settings become problems."""
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
        return _Assignment(mark, value).into(root, steps, "")
    except _PathError as error:
        problems.add(mark, str(error), "set the whole of it instead")
        return root


def _steps(path: str) -> list[Step] | None:
    """`hosts[1].slots` -> ["hosts", 1, "slots"]; None if that is not a path."""
    steps: list[Step] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if not match or len(steps) == MAX_DEPTH:
            return None
        steps.append(match[1] or int(match[2]))
        end = match.end()
    return steps if steps and isinstance(steps[0], str) else None


class _Assignment(Frozen):
    """A value to set at the end of a path. Missing keys on the path are created."""

    mark: Mark
    value: Node

    def into(self, node: Node | None, steps: list[Step], path: str) -> Node:
        """A copy of `node`, which is at `path`, with the value at the end of `steps`."""
        if not steps:
            return self.value
        step, rest = steps[0], steps[1:]
        if isinstance(step, int):
            return self._into_sequence(node, step, rest, path)
        return self._into_mapping(node, step, rest, path)

    def _into_mapping(self, node: Node | None, name: str, rest: list[Step], path: str) -> Node:
        if node is None or (isinstance(node, Scalar) and node.empty):
            node = Mapping(self.mark, ())
        if not isinstance(node, Mapping):
            raise _PathError(f"{path} is {describe(node)}, which has no key {quoted(name)}")
        found = node.get(name)
        child = self.into(found.value if found else None, rest, f"{path}.{name}" if path else name)
        # An existing key keeps its place, so that problems with it name the place in the file.
        entry = Entry(found.key if found else Scalar(self.mark, name), child)
        entries = tuple(entry if old is found else old for old in node.entries)
        return replace(node, entries=entries if found else (*entries, entry))

    def _into_sequence(self, node: Node | None, index: int, rest: list[Step], path: str) -> Node:
        if node is None:
            raise _PathError(f"{path} is not there, so it has no item {index}")
        if not isinstance(node, Sequence):
            raise _PathError(f"{path} is {describe(node)}, not a list")
        if index > len(node.items):
            raise _PathError(f"{path} has {len(node.items)} items and no {path}[{index}]")
        old = node.items[index] if index < len(node.items) else None
        new = self.into(old, rest, f"{path}[{index}]")
        return replace(node, items=(*node.items[:index], new, *node.items[index + 1 :]))
