"""Replaces secrets and names in texts and in JSON; and the secrets that are known of a job."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any
from urllib.parse import quote, quote_plus

from distrun.job.events import KINDS
from distrun.job.folder import JobFolder
from distrun.redaction.secrets import is_secret, is_secret_value, replace_secrets, shown
from distrun.spec.addresses import is_loopback
from distrun.spec.regular_file import read_regular_file
from distrun.strategies import STRATEGIES

_LARGEST_FILE = 64 << 20
"""Bytes of a plan or a spec in which secrets are looked for."""
_FEWEST_CHARACTERS = 6
"""Of a value that is replaced within words, too, or has only letters."""
_REPLACED = re.compile(r"\[secret-\d+\]")
_OPTION = re.compile(r"-[^=]*")
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
"""A key of distrun's own JSON, which a reader must find."""
_PASSED = re.compile(r'"pass_env":\s*(\[[^\[\]]*\])')
_EXPRESSION = re.compile(r"[$(\[{<]")
_NO_NAMES = {"root", "user", "host", "home", "users", "app", "data", "tmp", "work", "workspace"}
"""Words that name nobody: some homes, as of containers, have such names."""


@functools.cache
def own_words() -> frozenset[str]:
    """Values in distrun's own files: a name or a secret that is one cannot be told from them."""
    found, waiting = {*KINDS, *STRATEGIES}, [Enum]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found.update(str(each.value) for each in kind)
    return frozenset(found)


class Redactor:
    """Replaces secrets, and the given names, in texts.

    Args:
        secrets: values that are replaced wherever they stand.
        users, hosts: names and addresses that are replaced where they are words.
        mask: what stands for a secret; empty: `[secret-1]`, `[secret-2]`.

    Attributes:
        secrets: the replacement of each secret that was found.
        names: the replacement of each name that was found, in small letters.
        kept: the given names that are words of distrun's own, too: they are not replaced.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        users: Iterable[str] = (),
        hosts: Iterable[str] = (),
        *,
        mask: str = "",
    ) -> None:
        self._mask = mask
        self.secrets: dict[str, str] = {}
        spelled = {
            each: secret
            for secret in {*secrets} - own_words()
            if len(secret) >= _FEWEST_CHARACTERS
            or (is_secret_value("secret", secret) and not secret.isalpha())
            for each in _spellings(secret)
        }
        self._known = dict(sorted(spelled.items(), key=lambda item: len(item[0]), reverse=True))
        self.names: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        for kind, names in (("user", users), ("host", hosts)):
            for name in names:
                self._add(kind, name.lower().rstrip("."))
        self.kept = sorted(self._labels.keys() & own_words())
        longest_first = sorted(self._labels.keys() - own_words(), key=len, reverse=True)
        any_name = "|".join(map(_pattern, longest_first)) or "(?!)"
        self._names = re.compile(rf"(?<![^\W_])(?:{any_name})(?![^\W_])", re.IGNORECASE)

    def _add(self, kind: str, name: str) -> None:
        is_address = ":" in name or name.replace(".", "").isdigit()
        short = name if is_address or kind == "user" else name.partition(".")[0]
        label = self._labels.get(name) or f"{kind}-{len(set(self._labels.values())) + 1}"
        for each in (name, short):
            if len(each) > 1 and not (each in _NO_NAMES or each.isdigit() or is_loopback(each)):
                self._labels.setdefault(each, label)

    def __call__(self, text: str) -> str:
        text = shown(text)
        for spelled, secret in self._known.items():
            if spelled in text:
                pattern = re.escape(spelled)
                if len(spelled) < _FEWEST_CHARACTERS:
                    pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
                text = re.sub(pattern, self._secret(secret), text)
        text = replace_secrets(text, self._secret)
        return self._names.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        name = found[0].lower()  # `re` takes other letters for the same, too
        return self.names.setdefault(name, self._labels.get(name, "name"))

    def _secret(self, text: str) -> str:
        if not text or text == self._mask or _REPLACED.fullmatch(text):
            return text
        return self.secrets.setdefault(text, self._mask or f"[secret-{len(self.secrets) + 1}]")

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with its texts redacted; `name`: of the field that has it."""
        if isinstance(value, str):
            if is_secret_value(name, value):
                return self._secret(value)
            return value if value in own_words() else self(value)
        if isinstance(value, dict):  # {"name": NAME, "value": VALUE} is a variable of a pod
            before = f"{name}_" if is_secret(name) else ""
            return {
                key if _FIELD.fullmatch(key) else self(key): self.value(
                    each, before + (str(value.get("name")) if key == "value" else key)
                )
                for key, each in value.items()
            }
        if isinstance(value, list):  # what follows an option may be a secret by its name
            texts = ["", *(each if isinstance(each, str) else "" for each in value)]
            return [
                self.value(each, before if _OPTION.fullmatch(before) and text[:1] != "-" else name)
                for each, before, text in zip(value, texts, texts[1:], strict=False)
            ]
        return value

    def json(self, line: str) -> str:
        try:
            line.encode()  # bytes that are no text would become text
            return json.dumps(self.value(json.loads(line)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return self(line)


def _pattern(name: str) -> str:
    """Return a pattern of a name, also within a range of hosts, as in `gpu-[01-16]`."""
    return re.sub(r"\d+", r"(?:\g<0>|\[\\d+[-,][-,\\d]*\])", re.escape(name))


def _spellings(secret: str) -> Iterator[str]:
    """Yield how a value stands in texts: as it is, in JSON, in Python, a URL, HTML, a shell.

    A value of several lines stands in a text line by line.
    """
    raw = secret.encode("utf-8", "replace")
    as_json, plain = json.dumps(secret), json.dumps(secret, ensure_ascii=False)
    yield from (each[1:-1] for each in (as_json, json.dumps(as_json[1:-1]), plain, repr(secret)))
    yield from (ascii(secret)[1:-1], repr(raw)[2:-1], secret, html.escape(secret))
    yield from (secret.replace("'", each) for each in ("''", "'\\''", "'\"'\"'"))
    for safe in ("/", ""):
        yield from (each(secret, safe, errors="replace") for each in (quote, quote_plus))
    lines = map(str.strip, secret.split("\n"))
    yield from (line for line in lines if len(line) >= _FEWEST_CHARACTERS)
    yield from (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex())


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
