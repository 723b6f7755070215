"""How tasks restart: the section `restart`, of the job and of roles, and exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from distrun.frozen import Frozen
from distrun.spec.common_values import count
from distrun.spec.nodes import Scalar
from distrun.spec.problems import Problems
from distrun.spec.scalars import Choice, Duration, ScalarSchema
from distrun.spec.schema import (
    JsonSchema,
    ListOf,
    Made,
    MappingSchema,
    OneOf,
    alternatives,
    key,
    keys_of,
    mismatch,
)
from distrun.strategies import Role

_LEAST_CODE, _MOST_CODE = 1, 255
_RANGE = r"[0-9]{1,3} ?- ?[0-9]{1,3}"
_WORDS_OF_TFJOB = {
    "always": "write always",
    "onfailure": "write failure",
    "exitcode": "write 128-255, the exit codes after which TFJob restarts",
    "never": "write 'max: 0' instead of on",
    "preempted": "write preemption",
}


class ExitCodes(ScalarSchema, kw_only=True):
    """An exit code, a range such as 130-255, or one of `words`; reads as text in that form."""

    words: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        forms = ("an exit code from 1 to 255", "a range such as 130-255", *self.words)
        return alternatives(forms)

    def read_scalar(self, node: Scalar, path: str, problems: Problems) -> Any:
        if node.text in self.words:
            return node.text
        if type(node.value) is int and _LEAST_CODE <= node.value <= _MOST_CODE:
            return str(node.value)
        if isinstance(node.value, str) and re.fullmatch(_RANGE, node.text):
            first, last = (int(each) for each in node.text.split("-"))
            if _LEAST_CODE <= first <= last <= _MOST_CODE:
                return f"{first}-{last}"
        return mismatch(node, path, self.expected, problems, self._hint(node))

    def _hint(self, node: Scalar) -> str:
        if self.words and node.value == 0 and type(node.value) is int:
            return "write always to start again after exit 0, too"
        text = node.text
        if not node.plain and re.fullmatch("[0-9]{1,3}", text):
            return f"write {text} without quotes"
        if re.fullmatch(_RANGE, text):
            first, last = sorted(int(each) for each in text.split("-"))
            is_turned = first >= _LEAST_CODE and last <= _MOST_CODE
            return f"write {first}-{last}" if is_turned else "exit codes are 1 to 255"
        return _WORDS_OF_TFJOB.get(text.lower(), "") if self.words else ""

    def own_schema(self) -> JsonSchema:
        forms: list[JsonSchema] = [
            {"type": "integer", "minimum": _LEAST_CODE, "maximum": _MOST_CODE},
            {"type": "string", "pattern": f"^(?:{_RANGE})$"},
        ]
        if self.words:
            forms.append({"enum": list(self.words)})
        return {"anyOf": forms}


def exit_codes(ranges: Iterable[str]) -> set[int]:
    """Return the exit codes of texts such as `3` and `130-255`."""
    bounds = (each.partition("-") for each in ranges)
    return {code for first, _, last in bounds for code in range(int(first), int(last or first) + 1)}


def _conditions(written: Any) -> tuple[str, ...]:
    words = [written] if isinstance(written, str) else written
    return tuple("failure" if each == "any failure" else each for each in words)


_CONDITION = ExitCodes(words=("preemption", "failure", "any failure", "always"))
_CONDITIONS = OneOf(
    text=_CONDITION,
    list=ListOf(
        item=_CONDITION, least=1, noun="condition", expected="a list such as [preemption, 130-255]"
    ),
)
_EXIT_CODES = ListOf(
    item=ExitCodes(),
    noun="exit code",
    expected="a list of exit codes and ranges such as [2, 64-78]",
)
_NEVER_ON = Made(_EXIT_CODES, lambda ranges: tuple(sorted(exit_codes(ranges))))


# fmt: off
class RestartSpec(Frozen, kw_only=True):
    """How often and how soon failed tasks are restarted. Times are in seconds."""

    max: int = key(count(0), 3,
        help="How often the job may restart; 0: never. Restarts after a preemption do not count.")
    backoff: float = key(Duration(zero=True), "1s",
        help="The wait before the first restart, randomly shortened by up to a quarter. It "
        "doubles with each restart.")
    backoff_max: float = key(Duration(zero=True), "30s", help="The longest wait before a restart.")
    reset_after: float | None = key(Duration(off=True), "10m",
        help="After this long without a failure, restarts are counted from 0 again.")
    on: tuple[str, ...] = key(Made(_CONDITIONS, _conditions), ("failure",), "any failure",
        examples=(["preemption", "130-255"], "preemption", "always"),
        help="The failures after which tasks restart: exit codes and ranges (for a signal, 128 + "
        "its number), `preemption`, `failure` (any), `always` (any failure; and exit 0 of tasks "
        "that restart alone and whose success the job does not need).")
    """Exit codes and ranges (`130-255`), preemption, failure, always: one of them is enough."""
    never_on: tuple[int, ...] = key(_NEVER_ON, (), examples=([2], [2, "64-78"]),
        help="Exit codes and ranges after which nothing is restarted, whatever `on` says.")
    min_workers: int | None = key(count(1), None, "all workers", examples=(2,),
        help="The fewest tasks of the role worker to continue with if no host has room for "
        "the others after a host was lost. Without it, the job waits for a host for "
        "timeouts.start, then fails.")
    host_failures: int = key(count(1), 3,
        help="After so many failures in a row of tasks on the same host, that host is left "
        "out if the tasks have room elsewhere.")

    @property
    def is_never(self) -> bool:
        """Whether `never_on` has all that `on` has."""
        is_of_codes = all(each[0].isdigit() for each in self.on)
        return is_of_codes and exit_codes(self.on) <= {*self.never_on}

    def includes(self, status: int | None, *, is_preempted: bool) -> bool:
        """Whether `on` includes a failure with this exit status; None: it has none."""
        if "failure" in self.on or "always" in self.on:
            return True
        if is_preempted and "preemption" in self.on:
            return True
        return status in exit_codes(each for each in self.on if each[0].isdigit())
# fmt: on


_RESTART_HINTS = {
    "true": "YAML 1.1 reads on as true: put 'on' in quotes",
    "roles": "write it as cluster.worker.restart",
    **{each.value: f"write it as cluster.{each.value}.restart" for each in Role},
}
_OF_JOB = ("min_workers", "host_failures")
RESTART = MappingSchema(
    expected="a mapping such as {max: 3}",
    unknown_hint=_RESTART_HINTS.get,
    kind=RestartSpec,
    keys=keys_of(RestartSpec),
)
ROLE_RESTART = OneOf(
    text=Choice(
        values=("never", "failure", "preemption", "always"),
        all_forms="never, failure, preemption, always or a mapping such as {max: 3}",
    ),
    mapping=MappingSchema(
        expected=RESTART.expected,
        unknown_hint=_RESTART_HINTS.get,
        keys={name: each for name, each in keys_of(RestartSpec).items() if name not in _OF_JOB},
    ),
)
"""`restart` of a role: a mapping, or a word for its `on`."""
NO_RESTARTS = RestartSpec(max=0)
"""The meaning of a spec without the section `restart`."""
