"""Replaces secrets and names in texts and in JSON; and the secrets that are known of a job."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any
from urllib.parse import quote

from distrun.job.events import KINDS
from distrun.job.folder import JobFolder
from distrun.redaction.secrets import is_secret, is_secret_value, replace_secrets
from distrun.spec.addresses import is_loopback
from distrun.spec.regular_file import read_regular_file
from distrun.strategies import STRATEGIES

_FEWEST_CHARACTERS = 6
"""Of a value that is replaced wherever it stands."""
_NUMBER_OR_RANGE = r"(?:\g<0>|\[\\d+[-,][-,\\d]*\])"
"""Of a host: spec.yaml may name it in a range, as in `gpu-[01-16]`."""
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
"""A key of distrun's own JSON, which a reader must find."""
_NO_NAMES = {"root", "user", "host", "home", "users", "app", "data", "tmp", "work", "workspace"}
"""Words that name nobody: some homes, as of containers, have such names."""


@functools.cache
def own_words() -> frozenset[str]:
    """Values in distrun's own files: a name or a secret that is one cannot be told from them."""
    values = (str(each.value) for kind in Enum.__subclasses__() for each in kind)
    return frozenset((*KINDS, *STRATEGIES, *values))


class Redactor:
    """Replaces secrets, and the given names, in texts.

    Args:
        secrets: values that are replaced wherever they stand.
        users, hosts: names and addresses that are replaced where they are words.
        mask: what stands for a secret; empty: `[secret-1]`, `[secret-2]`.

    Attributes:
        secrets: the replacement of each secret that was found.
        names: the replacement of each name that was found, in small letters.
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
        known = [each for each in {*secrets} - own_words() if len(each) >= _FEWEST_CHARACTERS]
        spelled = ((each, secret) for secret in known for each in _spellings(secret))
        self._known = dict(sorted(spelled, key=lambda item: len(item[0]), reverse=True))
        self.names: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        for kind, names in (("user", users), ("host", hosts)):
            for name in names:
                self._add(kind, name.lower().rstrip("."))
        longest_first = map(re.escape, sorted(self._labels, key=len, reverse=True))
        patterns = (re.sub(r"\d+", _NUMBER_OR_RANGE, each) for each in longest_first)
        any_name = "|".join(patterns) or "(?!)"
        self._names = re.compile(rf"(?<![^\W_])(?:{any_name})(?![^\W_])", re.IGNORECASE)

    def _add(self, kind: str, name: str) -> None:
        is_address = ":" in name or name.replace(".", "").isdigit()
        short = name if is_address or kind == "user" else name.partition(".")[0]
        label = self._labels.get(name) or f"{kind}-{len(set(self._labels.values())) + 1}"
        for each in {name, short} - own_words() - _NO_NAMES:
            if len(each) > 1 and not (each.isdigit() or is_loopback(each)):
                self._labels.setdefault(each, label)

    def __call__(self, text: str) -> str:
        for spelled, secret in self._known.items():
            if spelled in text:
                text = text.replace(spelled, self._secret(secret))
        text = replace_secrets(text, self._secret)
        return self._names.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        name = found[0].lower()  # `re` takes other letters for the same, too
        return self.names.setdefault(name, self._labels.get(name, "name"))

    def _secret(self, text: str) -> str:
        if text in ("", self._mask) or text.startswith("[secret-"):
            return text
        return self.secrets.setdefault(text, self._mask or f"[secret-{len(self.secrets) + 1}]")

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with its texts redacted; `name`: of the field that has it."""
        if isinstance(value, str):
            if is_secret_value(name, value):
                return self._secret(value)
            return value if value in own_words() else self(value)
        if isinstance(value, dict):  # {"name": NAME, "value": VALUE} is a variable of a pod
            return {
                key if _FIELD.fullmatch(key) else self(key): self.value(
                    each, str(value.get("name")) if key == "value" else key
                )
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.value(each, name) for each in value]
        return value

    def json(self, line: str) -> str:
        try:
            return json.dumps(self.value(json.loads(line)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return self(line)


def _spellings(secret: str) -> Iterator[str]:
    """Yield how a value stands in texts: as it is, in JSON, in Python, in a URL.

    A value of several lines stands in a text line by line.
    """
    as_json, plain = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (secret, as_json, plain, json.dumps(as_json)[1:-1], repr(secret)[1:-1])
    yield from (quote(secret, safe, errors="replace") for safe in ("/", ""))
    lines = (each.strip() for each in secret.split("\n"))
    yield from (line for line in lines if len(line) >= _FEWEST_CHARACTERS)


def secret_values(folder: JobFolder, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets of a job that are known here.

    They are what looks like secrets in its spec, the values of variables of `environ` whose names
    look secret, and those of the variables of `program.pass_env` there.
    """
    content = read_regular_file(str(folder.resolved_spec_file), largest=64 << 20) or b""
    text, redactor = content.decode("utf-8", "replace"), Redactor()
    passed = re.findall(r"\w+", " ".join(re.findall(r'"pass_env":\s*\[([^\[\]]*)\]', text)))
    found = [value for name, value in environ.items() if is_secret(name) or name in passed]
    redactor.json(text)
    redactor(text)  # where an option and its value follow each other
    return [*found, *(each for each in redactor.secrets if not re.search(r"[$(\[{<]", each))]
