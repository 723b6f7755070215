"""Values that several sections of the spec have: variables, arguments, paths, numbers of tasks."""

from __future__ import annotations

from distrun.spec.nodes import flow_style
from distrun.spec.scalars import Integer, Text
from distrun.spec.schema import ListOf, MapOf

NOT_EXPANDED = "variables are not expanded in paths; write the whole path"
_RESERVED = "DISTRUN_"
_LONGEST = 400
MAX_TASKS = 10_000
"""Twice as many as fit into a TF_CONFIG."""


def env_name_problem(name: str) -> str | None:
    if not name:
        return "is empty; write a variable's name"
    if "=" in name:
        return "holds '='; write NAME: value"
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return "holds a character that no variable's name can have; remove it"
    if name.startswith(_RESERVED):
        return f"is reserved: distrun itself sets {_RESERVED}*; use another name"
    return None


VERBATIM = Text(expected="text, a number, true or false", verbatim=True)
PATH = Text(expected="a path", least=1)

ENV = MapOf(
    value=VERBATIM,
    expected="a mapping such as {NAME: value}",
    noun="variable",
    name=Text(pattern=r"(?!DISTRUN_)[^=\u0000]+", check=env_name_problem),
)


def list_hint(text: str) -> str:
    """The list to write instead of a command line; empty if that is not clear, or too long."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        return ""
    return f"write {flow_style(words)}" if text.isprintable() and len(text) <= _LONGEST else ""


def words(item: Text, expected: str, noun: str, least: int = 0) -> ListOf:
    """A list of texts, which some write as one text."""
    return ListOf(item=item, expected=expected, noun=noun, least=least, text_hint=list_hint)


ARGS = words(VERBATIM, "a list such as [--epochs, 3]", "argument")
ARGS_HELP = "Each argument is passed exactly as it is written (`0.10` stays `0.10`)."
ENV_HELP = "Values are passed as they are written, and are recorded."
PYTHON = Text(expected="a Python interpreter", least=1)


def count(least: int) -> Integer:
    return Integer(least=least, most=MAX_TASKS, description=f"a whole number of {least} or more")
