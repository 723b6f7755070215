"""Applies `--set PATH=VALUE` to the nodes of a spec before it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from distrun.frozen import replace
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence, describe
from distrun.spec.problems import Mark, Problems, quoted
from distrun.spec.yamlnodes import MAX_DEPTH, parse

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
    if isinstance(value, Scalar) and value.plain and re.search(r"(^|\s)#", text):
        problems.add(mark, "to YAML, '#' begins a comment", "put quotes around the text as well")
        return root
    try:
        return _assigned(root, steps, value, mark, "")
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


def _assigned(node: Node | None, steps: list[Step], value: Node, mark: Mark, path: str) -> Node:
    """A copy of `node`, which is at `path`, with the value at the end of `steps`.

    Missing keys on the way are created. Raises _PathError.
    """
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if node is None:
            raise _PathError(f"{path} is not there, so it has no item {step}")
        if not isinstance(node, Sequence):
            raise _PathError(f"{path} is {describe(node)}, not a list")
        if step > len(node.items):
            raise _PathError(f"{path} has {len(node.items)} items and no {path}[{step}]")
        old = node.items[step] if step < len(node.items) else None
        new = _assigned(old, rest, value, mark, f"{path}[{step}]")
        return replace(node, items=(*node.items[:step], new, *node.items[step + 1 :]))
    if node is None or (isinstance(node, Scalar) and node.empty):
        node = Mapping(mark, ())
    if not isinstance(node, Mapping):
        raise _PathError(f"{path} is {describe(node)}, which has no key {quoted(step)}")
    found = node.get(step)
    inner = f"{path}.{step}" if path else step
    child = _assigned(found.value if found else None, rest, value, mark, inner)
    # An existing key keeps its place, so that problems with it name the place in the file.
    entry = Entry(found.key if found else Scalar(mark, step), child)
    entries = tuple(entry if old is found else old for old in node.entries)
    return replace(node, entries=entries if found else (*entries, entry))
