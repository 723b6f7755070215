"""What names of the user's own may be: environment variables, options of ssh, modules."""

from __future__ import annotations

import re

from distrun.spec.problems import quoted

UNEXPANDED = "'~' and variables are not expanded in paths; write the whole path"
RESERVED = "DISTRUN_"

ENV_NAME_PATTERN = r"^(?!DISTRUN_)[^=\u0000]+$"
MODULE_PATTERN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
INTERPRETER_PATTERN = r"[^/~$][^/$]*|/[^$]*"
OPTION_PATTERN = r"[A-Za-z][A-Za-z0-9]*"


def env_name_problem(name: str) -> str | None:
    """What is wrong with a variable's name, or None."""
    if not name:
        return "is empty; write a variable's name"
    if "=" in name:
        return "holds '='; write NAME: value"
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return "holds a character that no variable's name can have; remove it"
    if name.startswith(RESERVED):
        return f"is reserved: distrun itself sets {RESERVED}*; use another name"
    return None


def interpreter_problem(python: str) -> str | None:
    """What is wrong with what a host is to run Python by, or None."""
    if re.fullmatch(INTERPRETER_PATTERN, python):
        return None
    wanted = "must be a name that is in PATH there, or an absolute path"
    if python.startswith("~") or "$" in python:
        return f"{wanted}, not {quoted(python)}; {UNEXPANDED}"
    return f"{wanted}, not {quoted(python)}"


def option_name_problem(name: str) -> str | None:
    """What is wrong with the name of an option of ssh, or None."""
    if re.fullmatch(OPTION_PATTERN, name):
        return None
    return "is no option of ssh_config(5); write one such as ServerAliveInterval"
