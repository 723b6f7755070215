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
    from collections.abc import Callable, Iterator

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


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name in a text: of a variable, a field or an option."""
    rank = _rank(name) if _NO_VALUE.fullmatch(value) is None else 0
    return rank > 0 and is_distinct(value) and (rank > 1 or _looks_random(value))


def is_distinct(value: str) -> bool:
    """Whether a value is long and unusual enough to be replaced wherever it stands."""
    return len(value) >= FEWEST_CHARACTERS and _HARMLESS.fullmatch(value) is None


def _looks_random(value: str) -> bool:
    has_both = re.search("[0-9]", value) and re.search("[A-Za-z]", value)
    return len(value) >= 2 * FEWEST_CHARACTERS and bool(has_both) and value[0] not in "/~.("


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

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt]))(?=[\w.:-]{16})"
_RANDOM_USER = (
    r"(?:(?=[^\s/@:]{0,99}?\d)(?=[^\s/@:]{0,99}?[A-Za-z])[\w.~+-]{8,512}|[\w.~+-]{24,512})"
)
_SOURCE = "".join(rf"(?<!\.{each})" for each in ("py", "cc", "h", "c"))
_IDENTIFIED = r"(?i:identified\s+(?:with\s+\S{1,80}\s+)?(?:by|as)\s+(?:password\s+)?)"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_LINE = (
    r"(?:[ \t\r]*(?:[A-Za-z0-9+/]{1,15}={0,2}|[A-Za-z-]{4,20}: [^\n]*|=[A-Za-z0-9+/]{4})?[ \t\r]*"
    r"|[^\n]{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[\"'\\,n \t\r]{0,8})(?=\n|\Z)"
)
"""A line within a private key, perhaps behind what a log has before each of its lines."""
_FORMS = [
    (hint, re.compile("".join(parts)))
    for hint, *parts in (
        ("private key", _PEM, r"((?:(?!-----BEGIN)[\s\S]){1,16384}?(?=-----END )",
         rf"|[^\n]*(?:\n{_PEM_LINE})*)"),
        ("", _START, r"((?:hf|api_org|ghp|gho|ghu|ghs|ghr|npm|gsk|r8)_[A-Za-z0-9]{20,}",
         r"|(?:github_pat|dckr_pat|dop_v1|wandb_v1|glpat|gldt|pypi|nvapi|GOCSPX|AGE-SECRET-KEY)",
         r"[-_][A-Za-z0-9_-]{16,}",
         r"|(?:sk|pk|rk)(?:_live_|_test_|[-_](?=[a-z_-]{0,60}[A-Z0-9]))[A-Za-z0-9_-]{16,}",
         r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[A-Za-z0-9_-]{30,}",
         r"|ya29\.[A-Za-z0-9_-]{20,}|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",
         r"|hvs\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
         r"|[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",
         r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"),
        ("hooks.slack.com", r"hooks\.slack\.com/services/([\w/]{20,})"),
        ("discord", r"discord(?:app)?\.com/api/webhooks/([\w/-]{20,})"),
        ("wandb", r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
        ("://", rf"(?<=http)s?://({_RANDOM_USER}(?::[^\s\"'<>/@]{{0,512}})?)@(?=[\w\[.-])"),
        ("://", r"://[^\s/@:\"'<>]{0,512}:((?!\d{1,5}[/?#])[^\s\"'<>]{1,512})@(?=[\w\[.-])"),
        ("bearer", rf"(?i:bearer)\s+({_RANDOM_USER}={{0,2}})"),
        ("basic", r"(?i:basic)\s+([A-Za-z0-9+/_-]{6,}={0,2})"),
        (" ", r"\b(?:curl|wget)\b[^\n]{0,400}?\s(?:-[uU]|--user|--proxy-user)[= ]*[\"']?",
         r"[^\s:\"'@/]{1,80}:([^\s\"']+)"),
        (" ", r"\b(?:mysql\w*|sshpass|redis-cli|docker login)\b[^\n]{0,200}?\s-[pa] ?[\"']?",
         r"([^\s\"']+)"),
        ("identified", _IDENTIFIED, r"\\*'((?:[^'\\]|\\.|''){1,4096})"),
        ("identified", _IDENTIFIED, r"\\*\"((?:[^\"\\]|\\.|\"\"){1,4096})"),
        ("identified", _IDENTIFIED, r"(?=\S*\d)([^\s'\";\\]+)"),
        (":", rf"(?<![\w:/.*-])[\w.*-]{{1,200}}{_SOURCE}:(?:\d{{2,5}}|\*)",
         r":[A-Za-z_*][\w*-]{0,80}:",
         r"[A-Za-z_*][\w*.@-]{0,80}:(?![0-9a-fA-F:.]+(?!\S))([^\s\"']{6,512})"),
    )
]  # fmt: skip
"""A word in small letters that such a text has, and the pattern: its group is the secret."""


def _is_login(text: str) -> bool:
    """Whether a text is that of HTTP's basic authentication."""
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return False
    return b":" in found and found.decode("utf-8", "replace").isprintable()


# What has the name of a secret before it ----------------------------------------------------------

_NAME = re.compile(r"(?<![\w.-])[A-Za-z_.-][\w.-]{0,200}\w")
_QUOTE = r"(?:\\*[\"'])"
_KEYS = ("key", "keys")
_OF_KEY_BEFORE = re.compile(r"\b(api|access|secret|private) \Z", re.IGNORECASE)
_BEHIND = re.compile(
    rf"(?P<quote>{_QUOTE})?\]?(?:"
    r"\s*(?::\s*(?:str|bytes|string|SecretStr|Optional\[str\]|str \| None)\s*(?==))?"
    r"(?:=>|->|:=|={1,3}|[:\uff1a])(?:\s*(?=[bur]?[\"'\\])|[ \t]*)"
    rf"|(?(quote)\s*,\s*(?=[bur]?{_QUOTE})|(?!))|>(?=[^\s=])"
    r"|\s+(?:is|was)\s+(?:(?=[\"'])|(?=\S*\d)))"
)
_BEHIND_OPTION = re.compile(rf"{_QUOTE}?(?:\s+|\s*,\s*)(?!-)")
_QUOTED_AFTER = re.compile(r"\s+(?=[\"'])")
_SPACED = re.compile(r"[ \t]+")
_SPACED_BEFORE = re.compile(r"(?:\bENV|\bsetenv|\bset(?: -\w+)*|\blogin \S+)[ \t]+\Z")
_OPENING = re.compile(rf"(?:\$|[bur]|[A-Za-z_][\w.]{{0,40}}\([bur]?)?(\"{{3}}|'{{3}}|{_QUOTE})")
_BLOCK = re.compile(
    r"[|>][-+0-9]*[ \t]*\n(?P<lines>(?P<indent>[ \t]+)[^\n]*(?:\n(?P=indent)[^\n]*){0,200})"
)
_BARE = re.compile(
    r"\[secret-\d+\]|(?:[^\s\"',;&<>]|(?<=\w)[\"'](?=\w)|[,;&](?![\s\"']|\Z|[\w.%#-]{1,80}[=:;]))+"
)
_REST = re.compile(r"[^\r\n\"'}]+")
_YAML_BEFORE = re.compile(r"(?:\A|\n)[ \t]*(?:- )?\Z")
_MOST_QUOTED, _MOST_LINES = 4096, 3
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9+/])(?=[A-Za-z_]{0,40}[0-9])[A-Za-z0-9+/][\w+/-]{11,4096}={0,2}(?![\w/])"
)
_CHANGES = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
_FEWEST_RANDOM, _NEAR = 12, 80
"""Characters between the name of a secret and a random word that is taken for it."""


def _names(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the names stand that may be those of secrets."""
    words = {
        each
        for each in set(_NAME.findall(text))
        if any(_rank(name) or name.lower() in _KEYS for name in (each, each[1:]))
    }
    for found in _NAME.finditer(text) if words else ():
        if found[0] in words:
            begin, end = found.span()
            is_escape = not _rank(found[0]) and text[begin - 1 : begin] == "\\"  # as in `\nkey`
            name = found[0][is_escape:]
            of = _OF_KEY_BEFORE.search(text, max(0, begin - 8), begin)
            yield begin, end, f"{of[1]}_{name}" if of and name.lower() in _KEYS else name


def _named(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the values stand that have the names of secrets before them."""
    at = 0
    for begin, end, name in _names(text):
        value = _behind(text, begin, end) if begin >= at and _rank(name) else None
        if value is None:
            continue
        start, stop = _value_at(text, value, is_line=_has_its_line(text, name, begin, end))
        shown = text[start:stop]
        is_placeholder = shown.lower() in name.lower()  # `--password PASSWORD` in a usage
        if is_secret_value(name, shown.strip()) and not is_placeholder:
            yield start, stop
            at = stop


def _near(text: str) -> Iterator[tuple[int, int]]:
    """Yield where random words stand shortly behind the name of a secret, or within it."""
    at = 0
    for begin, end, name in _names(text):
        if _rank(name) > 1 or name.lower() == "key":
            last = end + _NEAR
            for near in _RANDOM.finditer(text, max(at, begin), last + _FEWEST_RANDOM):
                found = _RANDOM.match(text, near.start())  # to its end
                if found and len(_CHANGES.findall(found[0])) >= 0.45 * len(found[0]):
                    at = found.end()
                    yield found.span()


def _behind(text: str, begin: int, end: int) -> int | None:
    """Return where the value of a name at begin:end would start; None: nothing says of one."""
    tried = [_BEHIND.match(text, end)]
    if text[begin] == "-" or text[begin - 1 : begin] == "-":
        tried.append(_BEHIND_OPTION.match(text, end))
    if not text[begin:end].lower().endswith("token"):
        tried.append(_QUOTED_AFTER.match(text, end))
    if _SPACED_BEFORE.search(text, max(0, begin - 80), begin):
        tried.append(_SPACED.match(text, end))
    return next((each.end() for each in tried if each is not None), None)


def _has_its_line(text: str, name: str, begin: int, end: int) -> bool:
    """Whether all that follows on the line of a name is its value: in YAML, and in a header."""
    if name.lower().rpartition("-")[2] in ("authorization", "cookie"):
        return True
    is_first = _YAML_BEFORE.search(text, max(0, begin - 80), begin) is not None
    return is_first and _rank(name) > 1 and text[end : end + 2] == ": "


def _value_at(text: str, at: int, *, is_line: bool) -> tuple[int, int]:
    """Return where the value that starts there stands, without its quotes."""
    block = _BLOCK.match(text, at)
    if block is not None:
        return block.span("lines")
    opening = _OPENING.match(text, at)
    if opening is not None:
        at = opening.end()
        closing = re.compile(rf"(?<!\\){re.escape(opening[1])}").search(text, at, at + _MOST_QUOTED)
        if closing is not None and text.count("\n", at, closing.start()) < _MOST_LINES:
            return at, closing.start()
    if is_line:
        rest = _REST.match(text, at)
        return (at, at) if rest is None else rest.span()
    bare = _BARE.match(text, at)
    if bare is None:
        return at, at
    return at, bare.end() if bare[0][0] == "[" else at + len(bare[0].rstrip(")]}.,:;!?\\"))


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with what looks like a secret replaced; it has as many lines as before."""
    lowered = text.lower()
    for hint, pattern in _FORMS:
        if hint in lowered:
            spans = [found.span(1) for found in pattern.finditer(text)]
            if hint == "basic":
                spans = [each for each in spans if _is_login(text[slice(*each)])]
            text = _without(text, spans, replacement)
    for find in (_named, _near):
        text = _without(text, find(text), replacement)
    return text


def _without(
    text: str,
    spans: Iterator[tuple[int, int]] | list[tuple[int, int]],
    replacement: Callable[[str], str],
) -> str:
    """Return a text with parts of it replaced, line by line."""
    parts, done = [], 0
    for start, end in spans:
        label = replacement(text[start:end].strip())
        lines = (label if each.strip() else each for each in text[start:end].split("\n"))
        parts += [text[done:start], "\n".join(lines)]
        done = end
    return "".join([*parts, text[done:]])
