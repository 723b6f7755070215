"""What is taken for a secret in a text, and the secrets that are known of a job.

Each pattern takes a time that grows with the length of a line, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distrun.jobstore import JobFolder

_NAMES = (
    "*TOKEN", "*_KEY", "KEY", "*APIKEY", "*ACCESSKEY", "*PRIVATEKEY", "*PASSWORD*", "*PASSWD*",
    "*PASSPHRASE*", "*_PASS", "*_PWD", "*SECRET*", "*CREDENTIAL*",
)  # fmt: skip
FEWEST_CHARACTERS = 4
"""Of a value that is replaced wherever it stands. Shorter ones stand in too many other words."""
_FEWEST_IN_WORDS = 6
"""Of a value that is replaced also within a longer word."""
_HARMLESS = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|auto|default|\d{1,5})", re.IGNORECASE
)
_HINTS = (
    *("token", "key", "pass", "pwd", "secret", "credential", "authorization", "://"),
    *("hf_", "hf-", "ghp", "gho", "ghu", "ghs", "ghr", "glpat", "npm", "pypi", "sk-", "sk_"),
    *("pk-", "pk_", "rk-", "rk_", "xox", "github_pat", "akia", "asia", "aiza", "ya29.", "eyj"),
)
"""What a text has, in small letters, in which a pattern below finds something."""
_FORMS = (
    r"\b(?:hf|ghp|gho|ghu|ghs|ghr|glpat|npm|pypi|sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
)
"""How tokens of well-known services look: Hugging Face, GitHub, AWS, Google, Slack, JWT."""
_FORM = re.compile("|".join(_FORMS))
_IN_URL = re.compile(r"(?<=://)(?P<user>[^\s/@:]*):(?P<value>[^\s/@]+)(?=@)")
_IN_HEADER = re.compile(r"(?i)(?<=\bauthorization: )(?:(?:basic|bearer|digest|token) )?\S+")
_VALUE = (
    r"""(?P<value>\[secret-\d+\]|"(?:[^"\\]|\\.)+"|'(?:[^'\\]|\\.)+'"""
    r"""|["']?[^\s"',;&}\])]+)"""
)
_ASSIGNED = re.compile(
    r"""(?<![A-Za-z0-9_-])(?P<name>[A-Za-z_-][A-Za-z0-9_-]{0,80})"""
    r"""(?:\\?["']?\]?\s*[=:]\s*|\\?["']\s*,\s*)\\?""" + _VALUE
)
_OPTION = re.compile(
    r"""(?<![A-Za-z0-9_-])(?P<name>--?[A-Za-z][A-Za-z0-9_-]{0,80})(?:\s+|["']?\s*,\s*)(?!-)"""
    + _VALUE
)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LINE_OF_KEY = re.compile(
    r"\s*(?:[A-Za-z0-9+/]{1,15}={0,2}|[A-Za-z-]{4,20}: [^\n]*|=[A-Za-z0-9+/]{4})?\s*"
    r"|.{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[\"'\\,n\s]{0,8}"
)
"""A line within a private key, perhaps behind what a log has before each of its lines."""
_KEY_IN_LINE = re.compile(r"[A-Za-z0-9+/=\\]{12,}")
_CODE = re.compile(r"[$(\[{<]")


def is_secret(variable: str) -> bool:
    """Whether the name of a variable suggests that its value is a secret."""
    return any(fnmatchcase(variable.upper(), pattern) for pattern in _NAMES)


def names_a_secret(name: str) -> bool:
    """Whether a name in a text does so: of a variable, a field or an option.

    KEY alone means too many other things there.
    """
    name = name.lstrip("-").replace("-", "_")
    return name.upper() != "KEY" and is_secret(name)


def is_distinct(value: str) -> bool:
    """Whether a value is long and unusual enough to be replaced wherever it stands."""
    return len(value) >= FEWEST_CHARACTERS and _HARMLESS.fullmatch(value) is None


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with what looks like a secret replaced."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text

    def assigned(found: re.Match[str]) -> str:
        value = found["value"].strip("\"'").rstrip("\\")
        name = found["name"].strip("-").replace("-", "_")
        is_placeholder = value.lower() in name.lower()  # `--password PASSWORD` in a usage
        if not names_a_secret(name) or not is_distinct(value) or is_placeholder:
            return found[0]
        before = found[0][: found.start("value") - found.start()]
        return before + found["value"].replace(value, replacement(value))

    text = _FORM.sub(lambda found: replacement(found[0]), text)
    text = _IN_URL.sub(lambda found: f"{found['user']}:{replacement(found['value'])}", text)
    text = _IN_HEADER.sub(lambda found: replacement(found[0]), text)
    return _OPTION.sub(assigned, _ASSIGNED.sub(assigned, text))


class KeyBlocks:
    """Replaces private keys in the lines of one text, which are given in their order."""

    def __init__(self, replacement: Callable[[str], str]) -> None:
        self._replacement = replacement
        self._is_within = False
        self._label = ""

    def line(self, text: str) -> str | None:
        """Return a line with its part of a key replaced; None if there is none in it."""
        begin = _BEGIN.search(text)
        if begin is not None:
            rest = text[begin.end() :]
            end = _END.search(rest)
            self._is_within, self._label = end is None, ""
            body = rest[: end.start()] if end is not None else rest
            after = rest[end.start() :] if end is not None else ""
            shown = self._shown(body) if _KEY_IN_LINE.search(body) else body
            return f"{text[: begin.end()]}{shown}{after}"
        if not self._is_within:
            return None
        end = _END.search(text)
        if end is not None:
            self._is_within = False
            before = text[: end.start()]
            return (self._shown(before) if _KEY_IN_LINE.search(before) else before) + end[0]
        if _LINE_OF_KEY.fullmatch(text) is None:
            self._is_within = False
            return None
        return self._shown(text) if text.strip() else text

    def _shown(self, text: str) -> str:
        # One replacement for all lines of a key.
        self._label = self._label or self._replacement(text.strip())
        return self._label


def spellings(secret: str) -> Iterator[str]:
    """Yield how a value stands in texts: as it is, in JSON, in YAML, in Python's `repr`, in a URL.

    A value of several lines stands in a text line by line.
    """
    for text in dict.fromkeys((secret, secret.strip())):
        yield text
        in_json = json.dumps(text)[1:-1]
        yield in_json
        yield json.dumps(in_json)[1:-1]  # JSON in JSON
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        yield text.replace("'", "''")
        yield quote(text, safe="", errors="replace")
    yield from (line for line in secret.split("\n") if len(line) >= 2 * FEWEST_CHARACTERS)


def pattern_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds these texts, the longest first; None if there are none."""
    ordered = sorted(set(texts), key=len, reverse=True)
    bounded = (
        re.escape(each)
        if len(each) >= _FEWEST_IN_WORDS
        else rf"(?<![A-Za-z0-9]){re.escape(each)}(?![A-Za-z0-9])"
        for each in ordered
    )
    return re.compile("|".join(bounded)) if ordered else None


def secret_values(folder: JobFolder, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets of a job that are known here.

    They are the values of variables and options that look secret, in its spec, in its plan and in
    `environ`, and those of the variables of `program.pass_env` in `environ`.
    """
    found = [value for name, value in environ.items() if is_secret(name)]
    for file in (folder.plan_file, folder.resolved_spec_file):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            read = json.loads(file.read_text("utf-8"))
            found += _secret_fields(read, environ)
    return found


def _secret_fields(value: Any, environ: Mapping[str, str], name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secret_fields(each, environ, str(key))
    elif isinstance(value, list):
        before = ""
        for each in value:
            is_option = before.startswith("-") and "=" not in before
            yield from _secret_fields(each, environ, before if is_option else name)
            before = each if isinstance(each, str) else ""
    elif isinstance(value, str):
        if name == "pass_env":
            yield environ.get(value, "")
        elif names_a_secret(name) and not (name[:1] == value[:1] == "-"):
            yield value
        else:
            yield from _said_to_be_secret(value)


def _said_to_be_secret(text: str) -> list[str]:
    """Return what looks like a secret in a text, without expressions such as `$TOKEN`."""
    found: list[str] = []

    def note(value: str) -> str:
        found.append(value)
        return value

    for line in text.split("\n"):
        replace_secrets(line, note)
    return [each for each in found if _CODE.search(each) is None]
