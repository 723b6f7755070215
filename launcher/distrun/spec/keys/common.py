"""Shapes that several sections of the spec share."""

from __future__ import annotations

import re

from distrun.spec.names import ENV_NAME_PATTERN, env_name_problem
from distrun.spec.scalars import Integer, Text
from distrun.spec.shapes import ListOf, MapOf

MAX_TASKS = 10_000
"""Twice as many as a TF_CONFIG can hold."""

VERBATIM = Text(words="text, a number, true or false", verbatim=True)
PATH = Text(words="a path", least=1)

ENV = MapOf(
    value=VERBATIM,
    words="a mapping such as {NAME: value}",
    noun="variable",
    name_pattern=ENV_NAME_PATTERN,
    check_name=env_name_problem,
)


def list_hint(text: str) -> str:
    """The list that a command line's text should have been."""
    import shlex

    try:
        words = shlex.split(text[:200])
    except ValueError:
        words = text[:200].split()
    plain = re.compile(r"[A-Za-z0-9_./=+-]+")
    shown = ", ".join(word if plain.fullmatch(word) else repr(word) for word in words)
    return f"write [{shown}]"


ARGS = ListOf(
    item=VERBATIM, words="a list such as [--epochs, 3]", noun="argument", text_hint=list_hint
)
ARGS_SAY = "Arguments, each one taken exactly as it is written (`0.10` stays `0.10`)."
ENV_SAY = "Environment variables, values taken as they are written; they are recorded."
PYTHON = Text(words="a Python interpreter", least=1)


def count(least: int) -> Integer:
    return Integer(least=least, most=MAX_TASKS, says=f"a whole number of {least} or more")
