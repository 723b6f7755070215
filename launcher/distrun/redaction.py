"""Texts without secrets and, if wished, without the names of users and hosts.

The same name or secret gets the same replacement everywhere, so that a reader still sees what
belongs together. What a secret is can only be guessed: it is the value of a variable that
`program.pass_env` names or whose name looks secret, or a text that has the form of one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from distrun.jobstore import JobFolder

_SECRETS = (
    "*TOKEN", "*_KEY", "KEY", "*APIKEY", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*SECRET*",
    "*CREDENTIAL*",
)  # fmt: skip
_FEWEST_CHARACTERS = 4
"""Of a value that is replaced wherever it stands. Shorter ones stand in too many other words."""
_HARMLESS = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|auto|default|\d{1,5})", re.IGNORECASE
)
_FORMS = (
    r"\b(?:hf|ghp|gho|ghu|ghs|ghr|glpat|npm|pypi|sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
)
"""How tokens of well-known services look: Hugging Face, GitHub, AWS, Google, Slack, JWT."""
_FORM = re.compile("|".join(_FORMS))
_IN_URL = re.compile(r"(?<=://)([^\s/@:]*):([^\s/@]+)(?=@)")
_IN_HEADER = re.compile(r"(?i)(?<=\bauthorization: )(?:\w+ )?(\S+)")
_ASSIGNED = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?:["']?\]?\s*[=:]\s*|["']\s*,\s*)"""
    r"""(?P<value>"[^"]+"|'[^']+'|[^\s"',;&}\])]+)"""
)
_OPTION = re.compile(r"(?P<name>--?[A-Za-z][A-Za-z0-9_-]*)\s+(?P<value>[^\s\"'-]\S*)")
_REPLACED = re.compile(r"\[secret-\d+\]")
_KEY_BLOCK = re.compile(r"-----(BEGIN|END) [A-Z ]*PRIVATE KEY-----")
_WORD = re.compile(r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*")
_V4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]\d)")
_V6 = re.compile(r"(?<![\w:.])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?![\w:])")
_OWN_WORDS = {
    *("chief", "data", "evaluator", "host", "hosts", "home", "job", "jobs", "launch", "local"),
    *("localhost", "log", "logs", "main", "master", "name", "node", "ps", "root", "run", "slurm"),
    *("ssh", "srun", "task", "tasks", "test", "time", "tmp", "train", "user", "worker", "python"),
    *("distrun", "tensorflow", "cluster", "index", "type", "event", "attempt", "cause", "code"),
    *("signal", "status", "state", "start", "stop", "spec", "plan", "values", "error", "failed"),
}
"""Names that also mean something else: to replace them would make texts unreadable."""
_LONGEST_PARTS = 8


def is_secret(variable: str) -> bool:
    """Whether the name of a variable suggests that its value is a secret."""
    return any(fnmatchcase(variable.upper(), pattern) for pattern in _SECRETS)


class Redactor:
    """Replaces secrets, and the given names, in texts.

    Args:
        secrets: values that are replaced wherever they stand.
        users, hosts: names that are replaced where they are words. Those that are also words of
            distrun's own are kept, see :attr:`kept`.
        mask: what stands for a secret; empty: `[secret-1]`, `[secret-2]`.
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
        """The replacement of each secret that was found."""
        self.addresses: dict[str, str] = {}
        """The same of addresses."""
        self.kept: list[str] = []
        """The names that were not replaced."""
        known = sorted(set(filter(_is_distinct, secrets)), key=len, reverse=True)
        self._spelled = {each: secret for secret in known for each in _spellings(secret)}
        """The secrets by the ways in which they are written."""
        by_length = sorted(self._spelled, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, by_length))) if by_length else None
        self._names: dict[str, str] = {}
        self._replaces_names = False
        self._add_names(users, "user")
        self._add_names(hosts, "host")
        self._is_in_key = False

    @property
    def names(self) -> dict[str, str]:
        """The replacement of each name, in small letters."""
        return dict(self._names)

    def _add_names(self, names: Iterable[str], kind: str) -> None:
        found = [name.lower() for name in dict.fromkeys(names) if name]
        self._replaces_names = self._replaces_names or bool(found)
        number = 0
        for name in found:
            if name in self._names or name == "root" or _is_loopback(name):
                continue
            if _address(name) is not None:
                self._address(name)
            elif name in _OWN_WORDS or len(name) < 2 or _WORD.fullmatch(name) is None:
                self.kept += [name] if name not in self.kept else []
            else:
                first = name.partition(".")[0]
                same = self._names.get(first) if kind == "host" else None
                number += same is None
                self._names[name] = same or f"{kind}-{number}"
                if first not in _OWN_WORDS and len(first) > 1 and kind == "host":
                    self._names.setdefault(first, self._names[name])

    def line(self, text: str) -> str:
        """Return a line of a longer text: of a private key, each line is replaced."""
        found = _KEY_BLOCK.search(text)
        if found is not None:
            self._is_in_key = found[1] == "BEGIN"
            return text
        return self._secret(text) if self._is_in_key and text.strip() else self(text)

    def lines(self, text: str) -> str:
        """Return a text of several lines."""
        text = self._without_known(text)
        shown = "\n".join(map(self.line, text.split("\n")))
        self._is_in_key = False
        return shown

    def __call__(self, text: str) -> str:
        """Return a text, redacted."""
        text = self._without_known(text)
        text = _FORM.sub(lambda found: self._secret(found[0]), text)
        text = _IN_URL.sub(lambda found: f"{found[1]}:{self._secret(found[2])}", text)
        text = _IN_HEADER.sub(lambda found: self._secret(found[0]), text)
        text = _ASSIGNED.sub(self._assigned, text)
        text = _OPTION.sub(self._assigned, text)
        if self._replaces_names:
            text = _V4.sub(lambda found: self._address(found[0]), text)
            text = _V6.sub(lambda found: self._address(found[0]), text)
            text = _WORD.sub(lambda found: self._word(found[0]), text)
        return text

    def _without_known(self, text: str) -> str:
        known = self._known
        return text if known is None else known.sub(lambda found: self._secret(found[0]), text)

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON with its texts redacted; `name`: of the field that has it."""
        if isinstance(value, str):
            is_hidden = is_secret(name) and name.upper() != "KEY" and _is_distinct(value)
            return self._secret(value) if is_hidden else self.lines(value)
        if isinstance(value, list):
            return [self.value(each, name) for each in value]
        if isinstance(value, dict):
            return {self.lines(key): self.value(each, key) for key, each in value.items()}
        return value

    def json(self, line: str) -> str:
        """Return a text that is JSON, or any text, redacted."""
        try:
            return json.dumps(self.value(json.loads(line)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return self.lines(line)

    def _secret(self, text: str) -> str:
        text = self._spelled.get(text, text)
        if not text or text == self._mask or _REPLACED.fullmatch(text):
            return text
        known = self.secrets.get(text)
        if known is None:
            known = self.secrets[text] = self._mask or f"[secret-{len(self.secrets) + 1}]"
        return known

    def _assigned(self, found: re.Match[str]) -> str:
        name, value = found["name"].lstrip("-").replace("-", "_"), found["value"]
        quote = value[0] if value[0] in "\"'" else ""
        value = value.strip(quote) if quote else value
        if not is_secret(name) or name.upper() == "KEY" or not _is_distinct(value):
            return found[0]
        before = found[0][: found.start("value") - found.start()]
        return f"{before}{quote}{self._secret(value)}{quote}"

    def _address(self, text: str) -> str:
        address = _address(text)
        if address is None or _is_loopback(text) or address.is_unspecified:
            return text
        return self.addresses.setdefault(str(address), f"address-{len(self.addresses) + 1}")

    def _word(self, word: str) -> str:
        """Return a word with the names in it replaced: the longest ones first."""
        lowered = word.lower()
        if lowered in self._names:
            return self._names[lowered]
        parts = re.split(r"([.-])", word)
        if len(parts) == 1 or len(parts) > 2 * _LONGEST_PARTS:
            return word
        for length in range(len(parts) - 2, 0, -2):
            for start in range(0, len(parts) - length + 1, 2):
                name = "".join(parts[start : start + length]).lower()
                if name in self._names:
                    before, after = "".join(parts[:start]), "".join(parts[start + length :])
                    return (
                        before + self._names[name] + self._word(after)
                        if after
                        else (before + self._names[name])
                    )
        return word


def _is_distinct(value: str) -> bool:
    return len(value) >= _FEWEST_CHARACTERS and _HARMLESS.fullmatch(value) is None


def _spellings(secret: str) -> Iterator[str]:
    """Yield how a value stands in texts: as it is, in JSON, and in Python's `repr`."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield from (line for line in secret.split("\n") if len(line) >= 2 * _FEWEST_CHARACTERS)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_loopback(text: str) -> bool:
    address = _address(text)
    return text == "localhost" or (address is not None and address.is_loopback)


def secret_values(folder: JobFolder, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets of a job that are known here.

    They are the values of variables that look secret, in its spec, in its plan and in `environ`,
    and those of the variables of `program.pass_env` in `environ`.
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
        for each in value:
            yield from _secret_fields(each, environ, name)
    elif isinstance(value, str):
        if name == "pass_env":
            yield environ.get(value, "")
        elif is_secret(name) and name.upper() != "KEY":
            yield value
