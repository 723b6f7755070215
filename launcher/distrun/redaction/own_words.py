"""The words of distrun's own files: a name or a secret that is one cannot be told from them."""

from __future__ import annotations

import dataclasses
import functools
from enum import Enum
from typing import Any, get_args, get_type_hints

from distrun.agent.protocol import Cause, Code
from distrun.job.events import KINDS
from distrun.plan import Plan
from distrun.spec.model import Spec
from distrun.strategies import STRATEGIES


@functools.cache
def own_words() -> frozenset[str]:
    """Return the names of fields, events, codes, strategies, and the values of enums."""
    found = {*KINDS, *STRATEGIES, *(code.value for code in Code)}
    seen: set[Any] = set()
    waiting: list[Any] = [*KINDS.values(), Spec, Plan, Cause]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if not isinstance(kind, type) or kind in seen:
            continue
        seen.add(kind)
        if issubclass(kind, Enum):
            found.update(str(each.value) for each in kind)
        elif dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
            hints = get_type_hints(kind)
            found.update(hints)
            waiting += hints.values()
    return frozenset(found)
