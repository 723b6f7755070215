"""What is taken for a secret in a text: the tokens of services, and the value behind a name.

Each pattern takes a time that grows with the length of a text, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

_words = str.split
_FEWEST_CHARACTERS = 4
_NO_VALUE = re.compile(
    r"true|false|none|null|yes|no|on|off|auto|default|\d{1,5}|enabled|disabled|required|missing"
    r"|[*.x]+|\[[A-Z]+\]|\[?secret-\d+\]?|<.*|\d+\.\d+|[{(].*"
    r"|[\d.]{1,12} ?[A-Za-z%µ]{1,12}(?:/\w+)?|[~/][\w.-]+(?:/[\w.-]+)+",
    re.IGNORECASE,
)
"""Numbers, measurements, placeholders, paths of files, and words of languages and about secrets."""
_MIXED = re.compile(r"(?=[^/~.(])(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\s\S]{8}")
"""A value that is no word."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET = _words(
    "password passwords passwd passwort passphrase passcode secret secrets credential credentials "
    "apikey accesskey privatekey secretkey authkey"
)
"""Words that make a name one of a secret."""
_SECRET_AT_END = _words("token authorization jwt bearer")
_MAYBE_AT_END = _words(
    "pass sshpass userpass dbpass storepass pwd pw psk cred creds auth sid session sessionid "
    "phpsessid jsessionid sig signature cookie sas pat otp csrf"
)
"""Of values that may be secrets: if they look like no word of a language."""
_OF_KEY = _words(
    "api access private secret auth account shared preshared master encryption signing ssh license "
    "subscription service storage deploy client admin webhook app ssl tls hmac aes fernet wandb"
)
"""What stands before `key`."""
_PLACE = _words(
    "id ids count length len size type file path name dir folder url uri expires expiry ttl limit "
    "policy check reset"
)
"""The ends of names that say only where a secret is, or how it is."""
_OF_MODELS = _words(
    "pad eos bos unk sep cls mask special start end next forward backward first second single "
    "train eval"
)
"""Before `token` and `pass`: of texts, and of passes over data."""
_QUOTE = r"(?:\\*[\"'`]|&(?:quot|#39|#x27);|%22)"
_VALUE = re.compile(
    rf"(?:{_QUOTE}?\]?\s{{0,20}}(?:=>|->|<-|[:+?]?={{1,2}}|[:>]|%3[AaDd]|\.{{4,}}|(?<=[\"']),)"
    r"|(?P<blank>[\s,\\]))[ \t]{0,20}(?:- |\n\s{0,40}(?:- |(?=\S{0,99}\d)))?"
    rf"(?:(?:\w{{1,40}}\(|[bur$])(?=[\"']))?(?P<open>{_QUOTE})?"
    r"(?:(?i:bearer|basic|token|apikey)\s)?"
    r"(?P<value>(?(open)(?:(?!(?<!\\)(?P=open))[^\n]){1,4096}"
    r"|(?:[^\s\"'`,;&<>\])}]|(?<=\w)['](?=\w)|,(?=\S)(?![\w.-]{1,80}[=:])){1,512}))"
)
"""What may follow a name: a sign and a value; a blank and a value, if the name is an option."""
_MORE = re.compile(r"[^\s\"'`,;&<>\])}]*")
_NAME = re.compile(
    r"(?:(?<![\w.\\-])|(?<=%22)|(?<=\\[nrt]))"
    r"(?:(?i:api|access|secret|license) (?=(?i:key)\b))?[A-Za-z_.-][\w.-]{0,200}\w"
)
_CREDENTIAL = r"(?:(?=[^\s@:/]{0,99}\d)[\w.~+-]{8,512}|[\w.~+-]{24,512})"
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"((?:(?!-----BEGIN)[\s\S]){1,16384}?(?=-----END )"
    r"|[^\n]*(?:\n[^\n]{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[ \t\r]*(?=\n|\Z))*)"
)
"""To its end; if that is missing, as far as its lines look like base64."""
_OF_SERVICE = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[2-7][0-9A-F])|(?<=/bot))(?=[\w./:-]{16})("
    r"(?:hf|api_org|ghp|gho|ghu|ghs|ghr|npm|gsk|r8)_[A-Za-z0-9]{20,}"
    r"|(?:github_pat|dckr_pat|do[opr]_v1|wandb_v1|gl(?:pat|dt|rt|ft|cbt|ptt|agent|sa|c)|pypi|nvapi"
    r"|GOCSPX|AGE-SECRET-KEY|whsec|lin_api|ntn|xkeysib|PMAK|NRAK|tskey-[a-z]{3,9})[-_][\w-]{16,}"
    r"|(?:SK|key-|dapi|shp[a-z]{2}_)[0-9a-f]{32}(?![A-Za-z0-9])|dp\.[a-z]{2}\.[A-Za-z0-9]{20,}"
    r"|(?:1//0|[A-Za-z0-9]{14}\.atlasv1\.|ya29\.|hv[bs]\.|AIza|\d{8,10}:AA|xapp-)[\w-]{20,}"
    r"|(?:LS0tLS1CRUdJTi|FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/]{16,}={0,2}"
    r"|(?:sk|pk|rk)(?:_live_|_test_|[-_](?=[a-z_-]{0,60}[A-Z0-9]))[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|SG\.[\w-]{16,}\.[\w-]{16,}|xox[a-z]-[\w-]{10,}"
    r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"
)
"""The tokens of services that can be told by how they begin."""
_FORMS = [
    re.compile(each)
    for each in (
        *(_PRIVATE_KEY, _OF_SERVICE),
        r"\bcurl\b[^\n]{0,400}?\s(?:-[uU]|--\S*user)[= ]*[\"']?[^\s:\"'@/]+:([^\s\"']+)",
        r"(?:hooks\.slack\.com/services|discord\w*\.com/api/webhooks)/([\w/@-]{20,})",
        r"[\"']key[\"']:[ ]?[\"']([0-9a-f]{32})[\"']",  # Kaggle's
        r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])",
        rf"(?<=http)s?://({_CREDENTIAL}(?::[^\s\"'<>/@]{{0,512}})?)@(?=[\w\[.-])",
        r"://[^\s/@:\"'<>]{0,512}:((?!\d{1,5}[/?#])[^\s\"'<>]{1,512})@(?=[\w\[.-])",
        r"(?i:\b(?:authorization|cookie)[\"']?: ?[\"']?)([^\r\n\"'}]{4,4096})",
        rf"(?i:bearer)\s+({_CREDENTIAL}[\w.~+/-]*={{0,2}})",
        r"(?i:basic|auth plain)\s+((?=\S{0,99}\d)[A-Za-z0-9+/]{12,512}={0,2})(?![\w-])",
    )
]
"""In each pattern, the group is the secret."""
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]|[^\x08\r\n]\x08"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Escape sequences (ECMA-48), what is overwritten, and characters that are not shown."""


@functools.lru_cache(maxsize=10_000)
def _rank(name: str) -> int:
    """Return 2 for the name of a secret, 1 for one of what may be a secret, else 0."""
    words = [each.lower() for each in _WORD.findall(name)]
    while len(words) > 1 and (
        words[-1].isdigit() or words[-2:] in (["secret", "id"], ["key", "id"])
    ):
        words.pop()
    before, last = ["", *words][-2:] if words else ("", "")
    if last in _PLACE or (before in _OF_MODELS and last in ("token", "pass", "pwd")):
        return 0
    is_key = last in ("key", "keys") and (before in _OF_KEY or (before and name.isupper()))
    is_token = last in _SECRET_AT_END or (last == "tokens" and before in [*_OF_KEY, "hf"])
    if (
        is_key
        or is_token
        or not {*words}.isdisjoint(_SECRET)
        or (before and last in ("pass", "pwd"))
    ):
        return 2
    return 1 if last in _MAYBE_AT_END or name == "KEY" else 0


def is_secret(variable: str) -> bool:
    return variable.upper() == "KEY" or _rank(variable.upper()) > 1 or _rank(variable) > 1


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for printing: values whose names look like secrets become `***`.

    Screens are shared and output is kept. The tasks get the real values.
    """
    return {name: "***" if is_secret(name) else value for name, value in env.items()}


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name in a text: of a variable, a field or an option."""
    value = value[:512]
    if len(value) < _FEWEST_CHARACTERS or _NO_VALUE.fullmatch(value):
        return False
    return _rank(name) > 1 or (_rank(name) > 0 and _MIXED.match(value) is not None)


def shown(text: str) -> str:
    """Return a text as a terminal shows it; what NUL ends, as in /proc/PID/environ, in lines."""
    return _ESCAPE.sub("", re.sub(r"\0(?=[\w-])", "\n", text))


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    def without(found: re.Match[str], group: str | int = 1) -> str:
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        return found[0][:start] + replacement(found[group]) + found[0][end:]

    for pattern in _FORMS:
        text = pattern.sub(without, text)
    parts, done = [], 0
    for name in _NAME.finditer(text):
        if name.start() >= done and _rank(name[0]) and (found := _VALUE.match(text, name.end())):
            value = found["value"]
            is_meant = not found["blank"] or (name[0][0] == "-" and value[0] != "-")
            is_usage = value.lower() in name[0].lower()  # as in `--password PASSWORD`
            if is_meant and not is_usage and is_secret_value(name[0], value):
                parts += [text[done : found.start()], without(found, "value")]
                more = None if found["open"] else _MORE.match(text, found.end())
                done = (more or found).end()
    return "".join([*parts, text[done:]])
