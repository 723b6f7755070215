"""Replaces secrets and names in texts and in JSON; and the secrets that are known of a job."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distrun.redaction.names import Names
from distrun.redaction.secrets import (
    FEWEST_CHARACTERS,
    decoded,
    is_distinct,
    is_secret,
    is_secret_value,
    replace_secrets,
    shown,
)
from distrun.spec.regular_file import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from distrun.job.folder import JobFolder

_LARGEST_FILE = 64 << 20
"""Bytes of a plan or a spec in which secrets are looked for."""
_FEWEST_IN_WORDS = 6
"""Characters of a value that is replaced also within a longer word."""
_FEWEST_BROKEN = 8
"""Of a value that is found also where it is broken by the ends of lines, or by a frame."""
_BREAK = r"(?:\s|\\\n|[\u2500-\u257f|]){0,200}"
_FRAMES = dict.fromkeys([*range(0x2500, 0x2580), ord("|")])
_REPLACED = re.compile(r"\[secret-\d+\]")
_PASSED = re.compile(r'"pass_env":\s*(\[[^\[\]]*\])')
_EXPRESSION = re.compile(r"[$(\[{<]")


class Redactor:
    """Replaces secrets, and the given names, in texts.

    Args:
        secrets: values that are replaced wherever they stand.
        users, hosts: names that are replaced where they are words. Those that are also words of
            distrun's own are replaced only in `user@host` and in paths of home folders.
        mask: what stands for a secret; empty: `[secret-1]`, `[secret-2]`.
        roles: the roles of the job's tasks, which are never replaced.

    Attributes:
        secrets: the replacement of each secret that was found.
        names: the replacement of each name and address that was found, in small letters.
        kept: the given names that are words of distrun's own, too.
        kept_secrets: how many of the given secrets are such words, and not replaced.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        users: Iterable[str] = (),
        hosts: Iterable[str] = (),
        *,
        mask: str = "",
        roles: Iterable[str] = (),
    ) -> None:
        from distrun.redaction.own_words import own_words

        self._mask = mask
        self._words = own_words() | set(roles)
        self.secrets: dict[str, str] = {}
        found = sorted(set(filter(is_distinct, secrets)), key=len, reverse=True)
        known = [each for each in found if each not in self._words]
        self.kept_secrets = len(found) - len(known)
        self._known = _spelled(known)
        users, hosts = [*filter(None, users)], [*filter(None, hosts)]
        self._names = Names(users, hosts, self._words) if users or hosts else None
        self.names = {} if self._names is None else self._names.replaced
        self.kept = [] if self._names is None else self._names.kept

    def __call__(self, text: str) -> str:
        """Return a text, redacted: as a terminal shows it, with as many lines as before.

        It is searched with characters in place of their numbers (`%3D`, `\\u003d`). Lines in which
        nothing is found stay as they are.
        """
        text = shown(self._without_known(text))
        plain = decoded(text)
        found = replace_secrets(self._without_known(plain), self._secret)
        if self._names is not None:
            found = self._names.replace(found)
        if plain == text:
            return found
        lines = zip(text.split("\n"), plain.split("\n"), found.split("\n"), strict=True)
        return "\n".join(line if new == old else new for line, old, new in lines)

    def _without_known(self, text: str) -> str:
        joined = _joined(text) if self._known else ""
        for spelled, secret in self._known.items():
            if len(spelled) >= _FEWEST_BROKEN and spelled in joined:
                pattern = _BREAK.join(map(re.escape, spelled))
            elif spelled in text:
                pattern = re.escape(spelled)
                if len(spelled) < _FEWEST_IN_WORDS:
                    pattern = rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"
            else:
                continue
            text = re.sub(pattern, functools.partial(_by_lines, self._secret(secret)), text)
        return text

    def _secret(self, text: str) -> str:
        if not text or text == self._mask or _REPLACED.fullmatch(text):
            return text
        return self.secrets.setdefault(text, self._mask or f"[secret-{len(self.secrets) + 1}]")

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with its texts redacted; `name`: of the field that has it."""
        if isinstance(value, str):
            return self._secret(value) if is_secret_value(name, value) else self._text(value)
        if isinstance(value, dict):
            return {self._text(key): self.value(each, key) for key, each in value.items()}
        if not isinstance(value, list):
            return value
        items, before = [], ""
        for each in value:  # what follows an option may be a secret by its name
            is_value = before[:1] == "-" and "=" not in before and str(each)[:1] != "-"
            items.append(self.value(each, before if is_value else name))
            before = each if isinstance(each, str) else ""
        return items

    def _text(self, text: str) -> str:
        return text if text in self._words else self(text)

    def json(self, line: str) -> str:
        """Return a text that is JSON, or any text, redacted."""
        try:
            line.encode()  # bytes that are no text would become text
            return json.dumps(self.value(json.loads(line)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return self(line)


def _by_lines(label: str, found: re.Match[str]) -> str:
    return re.sub(r"[^\r\n]+", lambda _: label, found[0])


def _joined(text: str) -> str:
    """Return a text without what may break a secret in it."""
    return "".join(text.replace("\\\n", "").split()).translate(_FRAMES)


def _spelled(secrets: Iterable[str]) -> dict[str, str]:
    """Return the secrets by how they stand in texts, without breaks: the longest first."""
    found: dict[str, str] = {}
    for secret in secrets:
        for spelling in _spellings(secret):
            for each in (spelling, shown(spelling), decoded(spelling)):
                if is_distinct(each):
                    joined = _joined(each)
                    is_exact = len(joined) < _FEWEST_BROKEN or "|" in each
                    found.setdefault(each if is_exact else joined, secret)
    return dict(sorted(found.items(), key=lambda item: len(item[0]), reverse=True))


def _spellings(secret: str) -> Iterator[str]:
    """Yield how a value stands in texts: as it is, in JSON, in YAML, in Python's `repr`, in a URL.

    A value of several lines stands in a text line by line.
    """
    for text in dict.fromkeys((secret, secret.strip())):
        yield text
        for as_json in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            yield as_json
            yield json.dumps(as_json)[1:-1]  # JSON in JSON
        yield repr(text)[1:-1]
        yield text.replace("'", "''")
        yield quote(text, safe="", errors="replace")
        yield quote(text, errors="replace")
        yield html.escape(text)
        yield text.encode("utf-8", "replace").hex()
        yield from _base64(text.encode("utf-8", "replace"))
    yield from (line for line in secret.split("\n") if len(line) >= 2 * FEWEST_CHARACTERS)


def _base64(text: bytes) -> Iterator[str]:
    """Yield how bytes stand in the base64 form of a longer text: it depends on what is before."""
    for before in range(3 if len(text) >= _FEWEST_BROKEN else 0):
        encoded = base64.b64encode(bytes(before) + text).decode()
        # What the bytes around it have a part in is left out.
        whole = encoded[(before * 8 + 5) // 6 : (before + len(text)) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


def secret_values(folder: JobFolder, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets of a job that are known here.

    They are what looks like secrets in its spec and in its plan, the values of variables of
    `environ` whose names look secret, and those of the variables of `program.pass_env` there.
    """
    found = [value for name, value in environ.items() if is_secret(name)]
    redactor = Redactor()
    for file in (folder.plan_file, folder.resolved_spec_file):
        content = read_regular_file(str(file), largest=_LARGEST_FILE) or b""
        text = content.decode("utf-8", "replace")
        for names in _PASSED.findall(text):
            with contextlib.suppress(ValueError):
                found += [environ.get(str(name), "") for name in json.loads(names)]
        redactor.json(text)
    return [*found, *(each for each in redactor.secrets if not _EXPRESSION.search(each))]
