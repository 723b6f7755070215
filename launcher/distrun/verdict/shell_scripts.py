"""What shell scripts do with the exit codes of their commands, from their texts."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distrun.verdict.log_analysis import LogAnalysis

_RUNS_PYTHON = re.compile(
    r"(?im)^(?!\s*(?:#|(?:export )?\w+=\S*$|(?:echo|module|conda|source|pyenv) ))"
    r".*(?:python|\.py\b).*$"
)
_CALLED = re.compile(r"""(?m)^(?!\s*#)(?:.*[\s;&|("'])?([^\s;&|("']+\.sh)(?=[\s;&|)"']|$)""")
"""A path that ends in .sh, in a line that is no comment."""
_ECHO = re.compile(
    r"\b(?:echo|printf) (?:-\w+ )?((?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|[^;&|)\n\"']){1,200})"
)
_QUOTES = str.maketrans("", "", "\"'")
_EXPANDED = re.compile(r"\$\([^)]*\)|\$\{[^}]*\}|\$[\w?#$!*@]+|`[^`]*`|%\w|\\n")
_IGNORES = re.compile(r"\|\||^(?:if|while|until|!)\s|^script (?!-\w*e)")
_TRAP = re.compile(r"trap\b.*\bexit\b.*\b(?:EXIT|ERR)\b|wait$")
"""Commands after which the code of another one is lost; `wait` alone exits 0."""
_HIDES = re.compile(rf"(?<!>)\||{_IGNORES.pattern}")
_SETS_UP = re.compile(
    r"(?:cd|pushd|source|\.|module|ml|conda|mamba|micromamba|spack|pyenv|workon)\s[^;&|]*"
)
"""Commands of a shell that change the folder or the environment of those after them."""
_SHELL_SAID = re.compile(r"(?:\S*/)?([^\s/:]+): (?:\w{1,9} )?(\d{1,6}): ([^\s:]+): ")
_TOOL_SAID = re.compile(
    r".*(?:module\(s\) are unknown: |locate a modulefile for |find conda environment: )"
    r"[\"']?([^\s\"']+)"
)
"""What Lmod, Environment Modules and conda print of a name that they do not find."""
_CHAIN = re.compile(r"\|\||&&")
_TIMEOUT = re.compile(
    r"(?m)^[^#\n]*\btimeout (?:-[ks] ?\S+ |-\S+ ){0,4}(\d{1,9}(?:\.\d{1,9})?)([smhd]?) [^;&|\n]*py"
)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_STOPS_AT_ERROR = re.compile(r"\bset -\w*e|^#!.* -\w*e")
_SEVERAL = re.compile(r";|&(?!>|\d)")
TRIES_AGAIN = re.compile(
    r"(?m)^\s*(?:if|elif|until|while)\b.*py|\bbreak\b|&& exit\b|\|\|(?!\n).*\bpy"
)
"""A shell script that does something else, or the same again, where a program has failed."""
_INNER = re.compile(r"\$\([^)]*\)|`[^`]*`|'[^']*'|\"[^\"]*\"")
"""The parts of a line whose exit code is another's: of substitutions and quoted texts."""


def called_scripts(text: str) -> list[str]:
    """Return the paths of the shell scripts that one calls, as it writes them."""
    return _CALLED.findall(text)


def runs_python(text: str) -> bool:
    """Whether a shell script runs Python, or calls a script that may."""
    return bool(_RUNS_PYTHON.search(text) or _CALLED.search(text))


def hiding_line(scripts: list[tuple[str, str]], what: str) -> str:
    """Return the line of shell scripts that hides an exit code, as `train.sh:2: ...`, or ''.

    What exits is in the innermost script that has the word `what`, if one has.
    """
    last = max((i for i, (_, text) in enumerate(scripts) if what in text), default=len(scripts))
    return next(filter(None, itertools.starmap(_hiding_line_of, scripts[last::-1])), "")


def _hiding_line_of(name: str, text: str) -> str:
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    hides = _IGNORES if "pipefail" in text else _HIDES
    found = [
        each for each in lines
        if hides.search(_INNER.sub("", each[1])) or _TRAP.match(each[1])
    ]  # fmt: skip
    own = [each for each in found if re.search(r"py|^trap|\$@", each[1])]
    found = own or [each for each in found if "py" not in text or _TRAP.match(each[1])]
    if not found and not _STOPS_AT_ERROR.search(text):  # the last command's code counts
        is_one = sum("py" in line for _, line in lines) == 1
        found = [each for each in lines[-1:]
                 if _SEVERAL.search(each[1]) or "py" not in each[1] or not is_one]  # fmt: skip
    return "{}:{}: {}".format(name, *found[-1]) if found else ""


def not_set_up(log: LogAnalysis, scripts: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield where a shell says that its `cd` or the like, or Python, has failed, and its line."""
    texts = {name.partition(" ")[0]: text.splitlines() for name, text in scripts.items()}
    for at, said in enumerate(log.lines if texts else ()):
        name, number, what = _failed_at(said, texts)
        if not name:
            continue
        line, *later = [each.strip() for each in [*texts.get(name, [])[number - 1 :], ""]]
        command = _SETS_UP.match(line)
        rest = "\n".join([line[command.end() :], *later]) if command else line
        is_needed = _RUNS_PYTHON.search(rest) and (
            command or what in line.split() or line[:1] == "$"
        )
        is_checked = _CHAIN.search(line) or any(map(_STOPS_AT_ERROR.search, texts.get(name, ())))
        if is_needed and not is_checked:
            yield at, f"{name}:{number}: {line}"


def _failed_at(said: str, texts: Mapping[str, list[str]]) -> tuple[str, int, str]:
    """Return the script, the line or 0, and the name of what has failed by this line of a log."""
    if (by_shell := _SHELL_SAID.match(said)) is not None:
        return by_shell[1], int(by_shell[2]), by_shell[3]
    if (by_tool := _TOOL_SAID.match(said)) is not None:
        for name, lines in texts.items():
            for at, line in enumerate(lines, 1):
                if by_tool[1] in line.split():
                    return name, at, by_tool[1]
    return "", 0, ""


def only_echoes(rest: list[str], text: str) -> bool:
    """Whether only what the shell script itself prints follows the exception."""
    # What is expanded may be anything: a line of which nothing else is known counts once.
    printed = [_EXPANDED.split(line.translate(_QUOTES).strip()) for line in _ECHO.findall(text)]
    texts = [parts for parts in printed if any(map(str.strip, parts))]
    others = [
        line for line in rest
        if not (line[:1].isspace() or line in text
                or any(has_parts(line.translate(_QUOTES), each) for each in texts))
    ]  # fmt: skip
    return len(others) <= len(printed) - len(texts)


def has_parts(line: str, parts: list[str]) -> bool:
    """Whether a line begins and ends with the first and last of these, the others between them."""
    at = 0
    for part in parts:
        at = line.find(part, at) + len(part)
        if at < len(part):
            return False
    is_whole = len(parts) > 1 or line == parts[0]
    return is_whole and line.startswith(parts[0]) and line.endswith(parts[-1])


def time_limit(text: str) -> float:
    """Return the seconds after which `timeout` ends Python in a shell script, or infinity."""
    limit = _TIMEOUT.search(text)
    return float(limit[1]) * _UNITS[limit[2]] if limit else float("inf")
