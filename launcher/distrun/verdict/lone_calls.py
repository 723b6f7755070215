"""Calls that all tasks must make, in the text of a program that makes them under a condition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_OF_ONE = re.compile(
    r"chief|(?<![a-z])rank(?!ing|s)|(?<![a-z])task(?!s)|worker(?!s)|(?<!_)index|process_(?:index|id)"
    r"|main_?process|leader|master|is_first|\brandom\b",
    re.IGNORECASE,
)
"""What conditions have in them that differ from task to task."""
_WHICH_TASK = re.compile(r"DISTRUN_(?:RANK|TASK)|\bRANK\b|rank\(|task_(?:type|id|index)|\['task'\]")
"""What variables are set to that say which task it is."""
_OF_ALL = {
    *("fit", "evaluate", "predict", "save", "save_weights", "train_on_batch", "test_on_batch"),
    *("reduce", "all_reduce", "gather", "all_gather", "merge_call"),
}
_CALLBACKS = {"ModelCheckpoint", "BackupAndRestore"}
"""They save in all tasks, or wait. Not every model waits in them."""
_METRIC = re.compile(r"(?i)loss|acc|metric|mean|auc|ma[ep]\b|mse|precision|recall|f1|iou|perplex")
"""Whose `result` is reduced over all replicas, if it was made in the strategy's scope."""
_OF_STRATEGY = {"run", "experimental_run_v2"}
_ELSEWHERE = re.compile(r"(?i)(?:np|numpy|torch|plt|joblib|wandb|\w*(?:im(?:age|g)|fig)\w*)$")
"""What has a `save` that has nothing to do with TensorFlow."""
_JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


class LoneCall(NamedTuple):
    """Such a call: its line, what it calls, and the lines of that if the program defines it."""

    line: int
    name: str
    inside: range = range(0)

    def __str__(self) -> str:
        return f"{self.line} calls {self.name}"

    @property
    def is_unsure(self) -> bool:
        """Whether it may be right: it counts only where a task stands in it."""
        return self.name == "result"

    def contains(self, line: int) -> bool:
        return line == self.line or line in self.inside


def find_lone_calls(text: str) -> list[LoneCall]:
    """Return such calls of a program, in the order of its lines, those that make callbacks last.

    A call that both branches make is not one. Functions of the program that make such a call, and
    variables that say which task it is, are followed.
    """
    try:
        tree = ast.parse(text)
        return _Program(tree).find()
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: it nests too deeply
        return []


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._known: dict[ast.AST, list[tuple[str, int]]] = {}
        """The calls of each statement."""
        self._own: dict[str, range] = {}
        """The functions of the program that make such a call, and their lines."""
        self._own = {
            each.name: range(each.lineno, (each.end_lineno or each.lineno) + 1)
            for each in self._nodes
            if isinstance(each, ast.FunctionDef) and any(self._calls(each.body))
        }
        self._known.clear()  # now with the calls of these
        self._variables = {
            target.id for each in self._nodes
            if isinstance(each, ast.Assign) and _WHICH_TASK.search(ast.unparse(each.value))
            for target in each.targets if isinstance(target, ast.Name)
        }  # fmt: skip

    def find(self) -> list[LoneCall]:
        lone = {
            (line, name)
            for here, there in self._branches()
            for name, line in (here | there).items()
            if (name in here) != (name in there)
        }
        found = sorted(lone, key=lambda each: (each[1] in _CALLBACKS, each))
        return [LoneCall(*each, self._own.get(each[1], range(0))) for each in found]

    def _branches(self) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """Yield the calls of both branches of each condition that differs from task to task."""
        for node in self._nodes:
            if isinstance(node, ast.IfExp) and self._is_of_one(node.test):
                yield dict(self._calls([node.body])), dict(self._calls([node.orelse]))
            elif isinstance(node, ast.BoolOp) and self._is_of_one(node.values[0]):
                yield dict(self._calls(node.values[1:])), {}
            for field in ("body", "orelse", "finalbody"):
                block: list[ast.stmt] = getattr(node, field, [])
                for at, each in enumerate(block if isinstance(block, list) else []):
                    if isinstance(each, ast.If) and self._is_of_one(each.test):
                        is_left = isinstance(each.body[-1], _JUMPS)
                        rest = block[at + 1 :] if is_left else []
                        yield dict(self._calls(each.body)), dict(self._calls(each.orelse + rest))

    def _is_of_one(self, test: ast.expr) -> bool:
        names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
        return bool(names & self._variables) or _OF_ONE.search(ast.unparse(test)) is not None

    def _calls(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
        for node in nodes:
            if node not in self._known:
                self._known[node] = list(self._calls_in(node))
            yield from self._known[node]

    def _calls_in(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        for each in ast.walk(node):
            called = each.func if isinstance(each, ast.Call) else None
            if isinstance(called, ast.Attribute):
                whose = ast.unparse(called.value)
                is_of_all = called.attr in _OF_ALL and not _ELSEWHERE.match(whose)
                is_metric = called.attr == "result" and _METRIC.search(whose)
                is_run = called.attr in _OF_STRATEGY and "strateg" in whose.lower()
                if is_of_all or is_metric or is_run or called.attr in _CALLBACKS:
                    yield called.attr, called.lineno
            elif isinstance(called, ast.Name) and called.id in {*self._own, *_CALLBACKS}:
                yield called.id, called.lineno
