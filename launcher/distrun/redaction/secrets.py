"""What is taken for a secret in a text: the tokens of services, and the value behind a name.

Each pattern takes a time that grows with the length of a text, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

_NO_VALUE = re.compile(
    r".{0,3}|true|false|none|null|yes|no|on|off|auto|default|\d{1,5}|enabled|disabled|required|missing"
    r"|[*.x]+|\[[A-Z]+\]|\[?secret-\d+\]?|<.*|\d+\.\d+|[{(].*"
    r"|[\d.]{1,12} ?[A-Za-z%µ]{1,12}(?:/\w+)?|[~/][\w.-]+(?:/[\w.-]+)+",
    re.IGNORECASE,
)
"""Numbers, measurements, placeholders, paths of files, and words of languages and about secrets."""
_BOUND = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_OF_KEY = (
    r"(?:api|access|secret|private|auth|account|shared|master|encryption|signing|ssh|license|"
    r"storage|service|deploy|client|app|wandb)"
)
_SECRET_NAME = re.compile(
    r"(?!.*_(?:(?<!secret_)(?<!key_)ids?|counts?|len|length|size|type|files?|path|name|dir|folder"
    r"|ur[li]|expires|expiry|ttl|limit|policy|check|reset)\Z)"  # they say only where or how it is
    r"(?!(?:.*_)?(?:pad|eos|bos|unk|sep|cls|mask|special|start|end|next|forward|backward|first"
    r"|second|single|train|eval)_(?:token|pass)\Z)"  # they are of models
    rf"(?:.*_)?(?:(?:pass(?:word|wd|wort|phrase|code)s?|secrets?|credentials?|{_OF_KEY}_?keys?)(?:_.*)?"
    r"|token|hf_tokens|authorization|jwt|bearer|(?<=_)(?:pass|pwd))"
)
_NAME = re.compile(
    r"(?:(?<![\w.\\-])|(?<=\\[nrt]))(?:(?i:api) (?=(?i:key)\b))?-{0,2}[A-Za-z_][\w.-]{1,200}"
)
_QUOTE = r"(?:\\*[\"']|&(?:quot|#39|#x27);)"
_VALUE = re.compile(
    rf"{_QUOTE}?\]?(?:\s{{0,20}}(?:[:?+]?=|[:>]|[-=]>|\.{{4,}}|(?<=[\"']),)|(?P<blank>[\s,]))\s{{0,20}}"
    rf"(?P<quote>{_QUOTE})?(?:(?:bearer|basic|token)\s)?"
    r"(?P<value>(?(quote)(?:(?!(?<!\\)(?P=quote))[^\n]){1,4096}"
    r"|(?:[^\s\0\"'`,;&<>\])}]|,(?=\S)(?![\w.-]{1,80}[=:])){1,512}))",
    re.IGNORECASE,
)
"""What may follow a name: a sign and a value; a blank and a value, if the name is an option."""
_CREDENTIAL = r"(?:(?=[^\s@:/]{0,99}\d)[\w.~+-]{8,512}|[\w.~+-]{24,512})"
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"((?:(?!-----BEGIN)[\s\S]){1,16384}?(?=-----END )"
    r"|[^\n]*(?:\n[^\n]{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[ \t\r]*(?=\n|\Z))*)"
)
"""To its end; if that is missing, as far as its lines look like base64."""
_OF_SERVICE = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[2-7][0-9A-F]))(?=[\w./:-]{16})("
    r"(?:hf|api_org|ghp|gho|ghu|ghs|ghr|npm|gsk|r8)_[A-Za-z0-9]{20,}"
    r"|(?:github_pat|dckr_pat|wandb_v1|gl(?:pat|dt|rt|cbt|ptt)|pypi|nvapi|GOCSPX)[-_][\w-]{16,}"
    r"|(?:1//0|ya29\.|hv[bs]\.|AIza|xapp-)[\w-]{20,}|dapi[0-9a-f]{32}(?![A-Za-z0-9])"
    r"|(?:sk|pk|rk)(?:_live_|_test_|[-_](?=[a-z_-]{0,60}[A-Z0-9]))[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|xox[a-z]-[\w-]{10,}"
    r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"
)
"""The tokens of services that training uses, by how they begin."""
_FORMS = [
    re.compile(each)
    for each in (
        *(_PRIVATE_KEY, _OF_SERVICE),
        r"(?:hooks\.slack\.com/services|discord\w*\.com/api/webhooks)/([\w/@-]{20,})",
        r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])",
        r"[?&](?i:sig|x-amz-signature|x-goog-signature)=([^\s&\"']{8,512})",
        rf"(?<=http)s?://({_CREDENTIAL}(?::[^\s\"'<>/@]{{0,512}})?)@(?=[\w\[.-])",
        r"://[^\s/@:\"'<>]{0,512}:((?!\d{1,5}[/?#])[^\s\"'<>]{1,512})@(?=[\w\[.-])",
        r"(?i:\b(?:authorization|cookie)[\"']?: ?[\"']?)([^\r\n\"'}]{4,4096})",
        rf"(?i:bearer)\s+({_CREDENTIAL}[\w.~+/-]*={{0,2}})",
    )
]
"""In each pattern, the group is the secret."""


@functools.lru_cache(maxsize=10_000)
def is_secret(name: str) -> bool:
    """Whether the name of a variable, a field or an option is that of a secret."""
    words = _BOUND.sub("_", name).strip("_").lower()
    return bool(re.fullmatch(r"(?:[A-Z0-9_]*_)?KEY", name) or _SECRET_NAME.fullmatch(words))


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for printing, with `***` in place of secrets; the tasks get the real values."""
    return {name: "***" if is_secret(name) else _masked(value) for name, value in env.items()}


def mask_arguments(words: Sequence[str]) -> list[str]:
    """A command for printing, with `***` in place of secrets, as in :func:`mask_secrets`."""
    masked = []
    for before, word in zip(("", *words), words, strict=False):
        is_hidden = before[:1] == "-" and word[:1] != "-" and is_secret_value(before, word)
        masked.append("***" if is_hidden else _masked(word))
    return masked


def _masked(text: str) -> str:
    return replace_secrets(text, lambda _: "***")


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name in a text: of a variable, a field or an option."""
    return is_secret(name) and not _NO_VALUE.fullmatch(value[:512])


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    def without(found: re.Match[str], group: str | int = 1) -> str:
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        return found[0][:start] + replacement(found[group]) + found[0][end:]

    for pattern in _FORMS:
        text = pattern.sub(without, text)
    parts, done = [], 0
    for name in _NAME.finditer(text):
        found = _VALUE.match(text, name.end()) if is_secret(name[0]) else None
        if found is not None and name.start() >= done:
            value = found["value"]
            is_meant = not found["blank"] or (name[0][0] == "-" and value[0] != "-")
            is_usage = value.lower() in name[0].lower()  # as in `--password PASSWORD`
            if is_meant and not is_usage and is_secret_value(name[0], value):
                parts += [text[done : found.start()], without(found, "value")]
                done = found.end()
    return "".join([*parts, text[done:]])
