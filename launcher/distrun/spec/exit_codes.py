"""The schema of exit codes: one, a range, or a word for several."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distrun.frozen import Frozen
from distrun.spec.schema import JsonSchema, alternatives, mismatch
from distrun.spec.yamlnodes import Node, Scalar

if TYPE_CHECKING:
    from distrun.spec.problems import Problems

_LEAST, _MOST = 1, 255
_RANGE = r"[0-9]{1,3} ?- ?[0-9]{1,3}"
_WORDS_OF_TFJOB = {
    "always": "write always",
    "onfailure": "write failure",
    "exitcode": "write 128-255, the exit codes after which TFJob restarts",
    "never": "write 'max: 0' instead of on",
    "preempted": "write preemption",
}


class ExitCodes(Frozen, kw_only=True):
    """An exit code, a range such as 130-255, or one of `words`; reads as text in that form."""

    words: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        forms = ("an exit code from 1 to 255", "a range such as 130-255", *self.words)
        return alternatives(forms)

    def read(self, node: Node, path: str, problems: Problems) -> Any:
        if not isinstance(node, Scalar):
            return mismatch(node, path, self.expected, problems)
        if node.text in self.words:
            return node.text
        if type(node.value) is int and _LEAST <= node.value <= _MOST:
            return str(node.value)
        if isinstance(node.value, str) and re.fullmatch(_RANGE, node.text):
            first, last = (int(each) for each in node.text.split("-"))
            if _LEAST <= first <= last <= _MOST:
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
            is_turned = first >= _LEAST and last <= _MOST
            return f"write {first}-{last}" if is_turned else "exit codes are 1 to 255"
        return _WORDS_OF_TFJOB.get(text.lower(), "") if self.words else ""

    def json_schema(self) -> JsonSchema:
        forms: list[JsonSchema] = [
            {"type": "integer", "minimum": _LEAST, "maximum": _MOST},
            {"type": "string", "pattern": f"^(?:{_RANGE})$"},
        ]
        if self.words:
            forms.append({"enum": list(self.words)})
        return {"anyOf": forms}
