"""The words of distrun's own files: a user or a host of such a name cannot be told from them."""

from __future__ import annotations

import dataclasses
import functools
import types
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from distrun.agent.protocol import Cause, Code
from distrun.events import KINDS
from distrun.plan import Plan
from distrun.spec.model import Spec
from distrun.strategies import STRATEGIES

_OTHER_WORDS = {
    *("address", "data", "home", "host", "hosts", "job", "jobs", "launch", "local", "localhost"),
    *("log", "logs", "loss", "main", "master", "model", "node", "root", "run", "secret", "server"),
    *("slurm", "ssh", "srun", "step", "tasks", "test", "time", "tmp", "train", "user", "distrun"),
    *("epoch", "keras", "tensorflow", "tensorboard", "cluster", "type", "event", "error", "failed"),
    *("accuracy", "admin", "file", "line", "info", "warning", "traceback", "batch", "gpu", "cpu"),
    *(
        "am",
        "an",
        "as",
        "at",
        "be",
        "by",
        "cd",
        "do",
        "go",
        "he",
        "id",
        "if",
        "in",
        "io",
        "is",
        "it",
    ),
    *(
        "ls",
        "me",
        "my",
        "no",
        "np",
        "of",
        "ok",
        "on",
        "or",
        "os",
        "py",
        "re",
        "rm",
        "sh",
        "so",
        "tf",
    ),
    *("to", "up", "us", "we"),
    *("all", "and", "any", "are", "but", "can", "for", "has", "its", "new", "not", "now", "old"),
    *("one", "out", "see", "the", "two", "was", "yes", "you", "from", "with", "into", "this"),
}


@functools.cache
def own_words() -> frozenset[str]:
    """Return the names of fields, events, codes, strategies and the like, and everyday words."""
    found = {*_OTHER_WORDS, *KINDS, *STRATEGIES, *(code.value for code in Code)}
    seen: set[Any] = set()
    for kind in (*KINDS.values(), Spec, Plan, Cause):
        _add(kind, found, seen)
    return frozenset(found)


def _add(kind: Any, found: set[str], seen: set[Any]) -> None:
    if get_origin(kind) in (Union, types.UnionType, tuple, dict, list):
        for each in get_args(kind):
            _add(each, found, seen)
        return
    if not isinstance(kind, type) or kind in seen:
        return
    seen.add(kind)
    if issubclass(kind, Enum):
        found.update(str(each.value) for each in kind)
    elif dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        for name, hint in get_type_hints(kind).items():
            found.add(name)
            _add(hint, found, seen)
