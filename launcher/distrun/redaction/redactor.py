"""Replaces secrets and names in texts and in JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from distrun.redaction.names import Names
from distrun.redaction.secrets import (
    is_distinct,
    is_secret_value,
    pattern_of,
    replace_broken,
    replace_secrets,
    shown,
    spellings,
    unbroken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_REPLACED = re.compile(r"\[secret-\d+\]")
_OF_TASK = re.compile(r"([A-Za-z0-9_]+):\d+")
_MOST_REMEMBERED = 10_000
_LONGEST_REMEMBERED = 200


class Redactor:
    """Replaces secrets, and the given names, in texts.

    Args:
        secrets: values that are replaced wherever they stand.
        users, hosts: names that are replaced where they are words. Those that are also words of
            distrun's own are replaced only in `user@host` and in paths of home folders.
        mask: what stands for a secret; empty: `[secret-1]`, `[secret-2]`.
        roles: the roles of the job's tasks, which are never replaced.
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
        from distrun.redaction.vocabulary import own_words

        self._mask = mask
        self._words = own_words() | set(roles)
        self.secrets: dict[str, str] = {}
        """The replacement of each secret that was found."""
        found = sorted(set(filter(is_distinct, secrets)), key=len, reverse=True)
        known = [each for each in found if not (each.isalpha() and each in self._words)]
        self.kept_secrets = len(found) - len(known)
        """How many of the given secrets are words of distrun's own, and not replaced."""
        self._spelled = {
            each: secret
            for secret in known
            for spelling in spellings(secret)
            for each in (spelling, shown(spelling))
            if is_distinct(each)
        }
        """The secrets by the ways in which they are written."""
        self._known = pattern_of(self._spelled)
        self._unbroken = unbroken(self._spelled)
        users, hosts = [each for each in users if each], [each for each in hosts if each]
        lowered = {each.lower() for each in self._words}
        self._names = Names(users, hosts, lowered) if users or hosts else None
        self._remembered: dict[str, str] = {}

    @property
    def kept(self) -> list[str]:
        """The given names that are words of distrun's own, too."""
        return [] if self._names is None else self._names.kept

    @property
    def names(self) -> dict[str, str]:
        """The replacement of each name that was found, in small letters."""
        return {} if self._names is None else self._names.replaced

    @property
    def addresses(self) -> dict[str, str]:
        """The replacement of each address that was found, or is a host's."""
        return {} if self._names is None else self._names.addresses

    def __call__(self, text: str) -> str:
        """Return a text, redacted: as a terminal shows it, with as many lines as before."""
        if text in self._remembered:
            return self._remembered[text]
        plain = shown(self._without_known(text))
        redacted = replace_secrets(self._without_broken(plain), self._secret)
        if self._names is not None:
            redacted = "\n".join(map(self._names.replace, redacted.split("\n")))
        if len(text) <= _LONGEST_REMEMBERED and len(self._remembered) < _MOST_REMEMBERED:
            self._remembered[text] = redacted
        return redacted

    def _without_known(self, text: str) -> str:
        known = self._known
        return text if known is None else known.sub(lambda found: self._secret(found[0]), text)

    def _without_broken(self, text: str) -> str:
        text = self._without_known(text)
        return replace_broken(text, self._unbroken, self._secret)

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with its texts redacted; `name`: of the field that has it."""
        if isinstance(value, str):
            if is_secret_value(name, value):
                return self._secret(value)
            return value if self._is_own(value) else self(value)
        if isinstance(value, list):
            return self._items(value, name)
        if isinstance(value, dict):
            return {
                key if self._is_own(key) else self(key): self.value(each, key)
                for key, each in value.items()
            }
        return value

    def _items(self, values: list[Any], name: str) -> list[Any]:
        """Return the values of a list: what follows an option may be a secret by its name."""
        shown, before = [], ""
        for each in values:
            is_value = before.startswith("-") and "=" not in before
            is_value = is_value and not (isinstance(each, str) and each.startswith("-"))
            shown.append(self.value(each, before if is_value else name))
            before = each if isinstance(each, str) else ""
        return shown

    def _is_own(self, text: str) -> bool:
        """Whether a text is a word of distrun's own, or the name of a task."""
        if text in self._words:
            return True
        found = _OF_TASK.fullmatch(text)
        return found is not None and found[1] in self._words

    def json(self, line: str) -> str:
        """Return a text that is JSON, or any text, redacted."""
        try:
            line.encode()  # bytes that are no text would become text
            return json.dumps(self.value(json.loads(line)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return self(line)

    def _secret(self, text: str) -> str:
        text = self._spelled.get(text, text)
        if not text or text == self._mask or _REPLACED.fullmatch(text):
            return text
        known = self.secrets.get(text)
        if known is None:
            known = self.secrets[text] = self._mask or f"[secret-{len(self.secrets) + 1}]"
        return known
