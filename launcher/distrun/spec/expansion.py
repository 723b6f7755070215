"""Variables of the launching environment in values of the spec: `${NAME}`.

Only this form is expanded. `$NAME`, `${NAME:-text}` and the like belong to shells. `$${NAME}`
stands for the text `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Environ

from distrun.frozen import replace
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence
from distrun.spec.problems import Problems, quoted

PATTERN = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_VARIABLE = re.compile(rf"\$?{PATTERN}")


def expand(root: Node, environ: Environ[str, str], problems: Problems) -> Node:
    """Expand the variables in all values, unless `vars` is off. Unset ones become problems."""
    setting = root.get("vars") if isinstance(root, Mapping) else None
    if setting is not None and isinstance(setting.value, Scalar) and setting.value.text == "off":
        return root

    def expanded(scalar: Scalar) -> Scalar:
        def value_of(match: re.Match[str]) -> str:
            text = match[0]
            if text.startswith("$$"):
                return text[1:]
            name = text[2:-1]
            if name not in environ:
                hint = f"set it, write $${{{name}}} for the text, or write 'vars: off'"
                message = f"the variable {quoted(name)} is not set here"
                problems.add(scalar.mark, message, hint, is_only=True)
            return environ.get(name, text)

        text = _VARIABLE.sub(value_of, scalar.text)
        # An empty value is an empty text, not nothing.
        return replace(scalar, text=text, plain=scalar.plain and bool(text), expanded=True)

    return _changed(root, expanded)


def escape(root: Node) -> Node:
    """Return nodes that :func:`expand` turns into these, whatever is set."""
    return _changed(root, lambda each: replace(each, text=_VARIABLE.sub(r"$\g<0>", each.text)))


def _changed(node: Node, change: Callable[[Scalar], Scalar]) -> Node:
    if isinstance(node, Scalar):
        return change(node) if "${" in node.text else node
    if isinstance(node, Sequence):
        return replace(node, items=tuple(_changed(each, change) for each in node.items))
    entries = (Entry(each.key, _changed(each.value, change)) for each in node.entries)
    return replace(node, entries=tuple(entries))
