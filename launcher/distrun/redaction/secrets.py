"""What is taken for a secret in a text: by its form, or by the name before it.

Each pattern takes a time that grows with the length of a text, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import base64
import functools
import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FEWEST_CHARACTERS = 4
"""Of a value that is replaced wherever it stands. Shorter ones stand in too many other words."""
_HARMLESS = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|auto|default|\d{1,5})", re.IGNORECASE
)
_NO_VALUE = re.compile(
    r"enabled|disabled|required|missing|[*.x]+|\[[A-Z]+\]|<[^<>]*>"
    r"|[\d.]+ ?(?:[munµ]?s|%|[kMG]i?B)(?:/\w+)?|[\d.]{1,12} ?[A-Za-z]{1,12}/s|\d+\.\d+"
    r"|[~/][\w.-]*(?:/[\w.-]+)+\.\w{1,5}",
    re.IGNORECASE,
)
"""Measurements, placeholders, paths of files, and words that say how it is with a secret."""

# Names ---------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURE = re.compile(
    r"(?:pass(?:word|wort|wd|phrase|code)|secrets?|credentials?|(?:api|access|private|secret|auth)key)(?:_|\Z)"
    r"|(?:token|authorization|jwt|bearer)\Z|_(?:pass|pwd)\Z"
    r"|(?:\A|_)(?:api|access|private|secret|auth|account|shared|master|encryption|signing|ssh|license"
    r"|subscription|service|storage|deploy|client|admin|webhook|app|ssl|tls|hmac|aes)_keys?\Z"
)
"""What makes a name, its words in small letters and joined by `_`, one of a secret."""
_MAYBE = re.compile(
    r"(?:\A|_)(?:pass|pwd|pw|auth|sid|session|sessionid|sig|signature|cookie|sas|pat|otp|csrf)\Z"
)
"""The names of values that may be secrets: if they look like none of a language."""
_NONE = re.compile(
    r"(?:\A|_)(?:ids?|count|length|len|size|type|file|path|name|dir|folder|url|uri|expires|expiry|ttl"
    r"|limit|policy|check|reset)\Z"
    r"|(?:\A|_)(?:pad|eos|bos|unk|sep|cls|mask|special|start|end|next|forward|backward|first|second"
    r"|single|train|eval)_(?:token|pass|pwd)\Z"
)
"""Names that say only where a secret is; tokens of texts, and passes over data."""


@functools.lru_cache(maxsize=10_000)
def _rank(name: str) -> int:
    """Return 2 for the name of a secret, 1 for one of what may be a secret, else 0."""
    words = "_".join(each.lower() for each in _WORD.findall(name))
    words = re.sub(r"(?<=.)(?:_\d+)+\Z|(?<=secret)_id\Z|(?<=key)_id\Z", "", words)
    if _NONE.search(words):
        return 0
    if _SURE.search(words) or (words.endswith("_key") and name.isupper()):
        return 2
    return 1 if _MAYBE.search(words) else 0


def is_secret(variable: str) -> bool:
    """Whether the name of a variable suggests that its value is a secret."""
    return variable.upper() == "KEY" or _rank(variable.upper()) > 1 or _rank(variable) > 1


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for printing: values whose names look like secrets become `***`.

    Screens are shared and output is kept. The tasks get the real values.
    """
    return {name: "***" if is_secret(name) else value for name, value in env.items()}


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name in a text: of a variable, a field or an option."""
    rank = _rank(name) if _NO_VALUE.fullmatch(value) is None else 0
    return rank > 0 and is_distinct(value) and (rank > 1 or _MIXED.match(value) is not None)


def is_distinct(value: str) -> bool:
    """Whether a value is long and unusual enough to be replaced wherever it stands."""
    return len(value) >= FEWEST_CHARACTERS and _HARMLESS.fullmatch(value) is None


# Texts as they are read ------------------------------------------------------------------------

_CONTROL = re.compile(
    "[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Control characters, and characters that are not shown."""
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[PX^_][^\x1b\r\n]*\x1b\\"
    rf"|\x1b[ -/]*[0-~]|{_CONTROL.pattern}"
)
"""Escape sequences (ECMA-48), and what is not shown."""
_ENCODED = re.compile(
    r"[%&\\](?:(?<=%)([2-7][0-9A-Fa-f])"
    r"|(?<=&)(?:#[xX]([0-9A-Fa-f]{1,6});|#\d{1,7};|quot;|apos;|amp;|lt;|gt;)"
    r"|(?<=\\)\\{0,7}(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})))"
)
"""Characters by their numbers, as in addresses, JSON, Python, shells and HTML."""
_MOST_LAYERS = 3


def shown(text: str) -> str:
    """Return a text as a terminal shows it: no escapes, backspaces carried out; the same lines."""
    if _CONTROL.search(text):
        text = _ESCAPE.sub("", text)
    if "\b" not in text:
        return text
    kept: list[str] = []
    for char in text:
        if char != "\b":
            kept.append(char)
        elif kept and kept[-1] not in "\r\n":
            kept.pop()
    return "".join(kept)


def decoded(text: str) -> str:
    """Return a text as :func:`shown`, with characters in place of their numbers."""
    for _ in range(_MOST_LAYERS):
        before, text = text, _ENCODED.sub(_character, text)
        if text == before:
            break
    return shown(text)


def _character(found: re.Match[str]) -> str:
    if found.lastindex is None:
        char = html.unescape(found[0])
    else:
        number = int(found[found.lastindex], 8 if found.lastindex == _ENCODED.groups else 16)
        char = chr(number) if number < 0xD800 else found[0]
    return found[0] if char in "\r\n\\" else char


# What has the form of a secret -------------------------------------------------------------------

_MIXED = re.compile(r"(?=[^/~.(])(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\s\S]{8}")
_CREDENTIAL = r"(?:(?=[^\s@:]{0,99}?\d)(?=[^\s@:]{0,99}?[A-Za-z])[\w.~+-]{8,512}|[\w.~+-]{24,512})"
_SOURCE = "".join(rf"(?<!\.{each})" for each in ("py", "cc", "h", "c"))
_IDENTIFIED = r"(?i:identified\s+(?:with\s+\S{1,80}\s+)?(?:by|as)\s+(?:password\s+)?)"
_PEM_LINE = (
    r"(?:[ \t\r]*(?:[A-Za-z0-9+/]{1,15}={0,2}|[A-Za-z-]{4,20}: [^\n]*|=[A-Za-z0-9+/]{4})?[ \t\r]*"
    r"|[^\n]{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[\"'\\,n \t\r]{0,8})(?=\n|\Z)"
)
"""A line within a private key, perhaps behind what a log has before each of its lines."""
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"((?:(?!-----BEGIN)[\s\S]){{1,16384}}?(?=-----END )|[^\n]*(?:\n{_PEM_LINE})*)"
)
_OF_SERVICE = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt]))(?=[\w.:-]{16})("
    r"(?:hf|api_org|ghp|gho|ghu|ghs|ghr|npm|gsk|r8)_[A-Za-z0-9]{20,}"
    r"|(?:github_pat|dckr_pat|dop_v1|wandb_v1|glpat|gldt|pypi|nvapi|GOCSPX|AGE-SECRET-KEY)"
    r"[-_][A-Za-z0-9_-]{16,}"
    r"|(?:sk|pk|rk)(?:_live_|_test_|[-_](?=[a-z_-]{0,60}[A-Z0-9]))[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[A-Za-z0-9_-]{30,}"
    r"|ya29\.[A-Za-z0-9_-]{20,}|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|hvs\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"
    r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"
)
"""The tokens of services that can be told by how they begin."""
_CURL = (
    r"\b(?:curl|wget)\b[^\n]{0,400}?\s(?:-[uU]|--user|--proxy-user)[= ]*[\"']?"
    r"[^\s:\"'@/]{1,80}:([^\s\"']+)"
)
_PGPASS = (
    rf"(?<![\w:/.*-])[\w.*-]{{1,200}}{_SOURCE}:(?:\d{{2,5}}|\*):[A-Za-z_*][\w*-]{{0,80}}:"
    r"[A-Za-z_*][\w*.@-]{0,80}:(?![0-9a-fA-F:.]+(?!\S))([^\s\"']{6,512})"
)
_FORMS = [
    re.compile(each)
    for each in (
        *(_PEM, _OF_SERVICE, _CURL, _PGPASS),
        r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/([\w/-]{20,})",
        r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])",
        rf"(?<=http)s?://({_CREDENTIAL}(?::[^\s\"'<>/@]{{0,512}})?)@(?=[\w\[.-])",
        r"://[^\s/@:\"'<>]{0,512}:((?!\d{1,5}[/?#])[^\s\"'<>]{1,512})@(?=[\w\[.-])",
        rf"(?i:bearer)\s+({_CREDENTIAL}={{0,2}})",
        r"\b(?:mysql\w*|sshpass|redis-cli|docker login)\b[^\n]{0,200}?\s-[pa] ?[\"']?([^\s\"']+)",
        rf"{_IDENTIFIED}\\*'((?:[^'\\]|\\.|''){{1,4096}})",
        rf"{_IDENTIFIED}\\*\"((?:[^\"\\]|\\.|\"\"){{1,4096}})",
        rf"{_IDENTIFIED}(?=\S*\d)([^\s'\";\\]+)",
    )
]
"""In each pattern, the group is the secret."""
_BASIC = re.compile(r"(?i:basic)\s+([A-Za-z0-9+/_-]{4,4096}={0,2})(?![\w/+])")


def _is_login(text: str) -> bool:
    """Whether a text is that of HTTP's basic authentication."""
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False
    return b":" in found and found.decode("utf-8", "replace").isprintable()


# What has the name of a secret before it ----------------------------------------------------------

_NAME = re.compile(
    r"(?<![\w.-])(?:(?i:api|access|secret|private) (?=(?i:keys?)\b))?[A-Za-z_.-][\w.-]{0,200}\w"
)
_QUOTE = r"(?:\\*[\"'])"
_VALUE = re.compile(
    rf"(?P<end>{_QUOTE})?\]?(?P<sign>\s*"
    r"(?::\s*(?:str|string|SecretStr|bytes|Optional\[str\]|str \| None)\s*(?==))?"
    r"(?:=>|->|:=|={1,3}|[:\uff1a])|>(?=[^\s=])|\s+(?:is|was)\s+(?=[\"']|\S*\d)"
    rf"|(?(end)\s*,\s*(?=[bur]?{_QUOTE})|(?!)))?"
    r"(?:\s*(?P<block>[|>][-+0-9]*[ \t]*\n(?P<indent>[ \t]+)[^\n]*(?:\n(?P=indent)[^\n]*){0,200})"
    rf"|\s*(?:\$|[bur]|[A-Za-z_][\w.]{{0,40}}\([bur]?)?(?P<open>\"{{3}}|'{{3}}|{_QUOTE})"
    r"(?P<quoted>(?:(?!\n\n)[\s\S]){0,4096}?)(?<!\\)(?P=open)"
    rf"|(?(sign)[ \t]*|\s*(?:,\s*)?)(?:[bur]?{_QUOTE})?"
    r"(?P<bare>\[secret-\d+\]|(?:[^\s\"',;&<>]|(?<=\w)[\"'](?=\w)"
    r"|[,;&](?![\s\"']|\Z|[\w.%#-]{1,80}[=:;]))+))"
)
"""What may follow the name of a secret: a sign, and a value in quotes, in a block, or bare."""
_SPACED = re.compile(r"(?:\bENV|\bsetenv|\bset(?: -\w+)*|\blogin \S+)[ \t]+\Z")
"""Before a name whose value follows without a sign, as behind an option."""
_LINE = re.compile(r"[^\r\n\"'}]+")
_LINE_BEFORE = re.compile(r"(?:\A|\n)[ \t]*(?:- )?\Z")
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9+/])(?=[A-Za-z_]{0,40}[0-9])[A-Za-z0-9+/][\w+/-]{11,4096}={0,2}(?![\w/])"
)
_CHANGES = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
_NEAR = 80
"""Characters between the name of a secret and a random word that is taken for it."""


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield where values stand that have the names of secrets before them."""
    at = 0
    for found in _NAME.finditer(text):
        (begin, end), name = found.span(), found[0]
        if not _rank(name) and text[begin - 1 : begin] == "\\":  # as in `\nkey`
            name = name[1:]
        if begin >= at and _rank(name):
            span = _behind(text, name, begin, end)
            if span is not None:
                yield span
                at = span[1]
        if _rank(name) > 1 or name.lower() == "key":
            for near in _RANDOM.finditer(text, max(at, begin), end + _NEAR):
                random = _RANDOM.match(text, near.start())  # to its end
                if random and len(_CHANGES.findall(random[0])) >= 0.45 * len(random[0]):
                    yield random.span()
                    at = random.end()


def _behind(text: str, name: str, begin: int, end: int) -> tuple[int, int] | None:
    """Return where the value of a name stands that is at begin:end; None: it has none."""
    found = _VALUE.match(text, end)
    if found is None:
        return None
    kind = next(each for each in ("block", "quoted", "bare") if found[each] is not None)
    is_quoted = kind == "quoted" and not name.lower().endswith("token")
    before = max(0, begin - 80)
    is_option = "-" in text[max(0, begin - 1) : begin + 1] and found[kind][:1] != "-"
    if not (found["sign"] or is_quoted or is_option or _SPACED.search(text, before, begin)):
        return None
    start, stop = found.span(kind)
    if kind == "bare" and found["bare"][0] != "[":
        is_yaml = _rank(name) > 1 and " " not in name and text[end : end + 2] == ": "
        is_header = name.lower().endswith(("authorization", "cookie"))
        if is_header or (is_yaml and _LINE_BEFORE.search(text, before, begin)):
            line = _LINE.match(text, start)  # all that follows on the line
            stop = start if line is None else line.end()
        else:
            stop = start + len(found["bare"].rstrip(")]}.,:;!?\\"))
    value = text[start:stop]
    is_placeholder = value.lower() in name.lower()  # `--password PASSWORD` in a usage
    return (start, stop) if is_secret_value(name, value.strip()) and not is_placeholder else None


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with what looks like a secret replaced; it has as many lines as before."""
    for pattern in _FORMS:
        text = _without(text, (found.span(1) for found in pattern.finditer(text)), replacement)
    logins = (found.span(1) for found in _BASIC.finditer(text) if _is_login(found[1]))
    text = _without(text, logins, replacement)
    return _without(text, _values(text), replacement)


def _without(text: str, spans: Iterable[tuple[int, int]], replacement: Callable[[str], str]) -> str:
    """Return a text with parts of it replaced, line by line."""
    parts, done = [], 0
    for start, end in spans:
        label = replacement(text[start:end].strip())
        lines = (label if each.strip() else each for each in text[start:end].split("\n"))
        parts += [text[done:start], "\n".join(lines)]
        done = end
    return "".join([*parts, text[done:]])
