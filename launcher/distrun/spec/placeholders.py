"""Placeholders in arguments and environment values, such as `{rank}` and `{address:worker:0}`.

Only these exact texts are replaced, because braces also occur in JSON and in other templates.
`{{rank}}` stands for the text `{rank}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

PORT = "port"
ADDRESS = "address:"
_NAME = rf"rank|index|role|host|{PORT}|{ADDRESS}[^{{}}]*"
_PLACEHOLDER = re.compile(rf"\{{(\{{(?:{_NAME})\}})\}}|\{{({_NAME})\}}")


def names(text: str) -> Iterator[str]:
    """Yield the names of the placeholders in a text, without the braces."""
    return (match[2] for match in _PLACEHOLDER.finditer(text) if match[2])


def fill(text: str, value_of: Callable[[str], str]) -> str:
    """Replace each placeholder by the value of its name."""
    if "{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda match: match[1] or value_of(match[2]), text)


def literal(text: str) -> str:
    """Return what stands for a text in which nothing is a placeholder."""
    return _PLACEHOLDER.sub(lambda match: f"{{{match[0]}}}", text)


def split_task(name: str) -> tuple[str, int] | None:
    """Return role and index of `address:ROLE:INDEX`; None if it has another form."""
    match = re.fullmatch(rf"{ADDRESS}(\w+):([0-9]{{1,9}})", name)
    return (match[1], int(match[2])) if match else None
