"""What is taken for a secret in a text, and the secrets that are known of a job.

Each pattern takes a time that grows with the length of a text, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import html
import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distrun.regular_file import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distrun.jobstore import JobFolder

_LARGEST_FILE = 64 << 20
"""Bytes of a plan or a spec in which secrets are looked for."""
FEWEST_CHARACTERS = 4
"""Of a value that is replaced wherever it stands. Shorter ones stand in too many other words."""
_FEWEST_IN_WORDS = 6
"""Of a value that is replaced also within a longer word."""
_FEWEST_BROKEN = 8
"""Of a value that is found also where it is broken by the ends of lines."""
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
_SECRET = (
    *(
        "password",
        "passwort",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "credential",
    ),
    *("credentials", "apikey", "accesskey", "privatekey", "secretkey", "authkey"),
)
"""How a word ends that makes a name one of a secret, wherever it is in the name."""
_SECRET_AT_END = (*_SECRET, "token", "authorization", "jwt", "bearer")
_MAYBE_SECRET = (
    *("pass", "pwd", "pw", "auth", "sid", "session", "sessionid", "sig", "signature", "cookie"),
    *("sas", "pat", "otp", "csrf"),
)
"""The last word of a name whose value may be a secret: if it looks like none of a language."""
_OF_KEY = (
    *("api", "access", "private", "secret", "auth", "account", "shared", "master", "encryption"),
    *("signing", "ssh", "license", "subscription", "service", "storage", "deploy", "client"),
    *("admin", "webhook", "app", "ssl", "tls", "hmac", "aes"),
)
_OF_MODEL = (
    *("pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "start", "end", "next"),
    *("forward", "backward", "first", "second", "single", "train", "eval"),
)
"""What is before tokens of texts, and before passes over data."""
_NO_SECRET_AT_END = (
    *("id", "ids", "count", "length", "len", "size", "type", "file", "path", "name", "dir"),
    *("folder", "url", "uri", "expires", "expiry", "ttl", "limit", "policy", "check", "reset"),
)
"""The last word of a name that says of a secret only where it is, for example."""


def _rank(name: str) -> int:
    """Return 2 for the name of a secret, 1 for one of what may be a secret, else 0."""
    words = [each.lower() for each in _WORD.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        del words[-1]
    last, before = (["", "", *words])[-1:-3:-1]
    if last in _NO_SECRET_AT_END and (before, last) != ("secret", "id"):
        return 0
    if last.endswith(_SECRET_AT_END):
        return 0 if last == "token" and before in _OF_MODEL else 2
    if any(each.endswith(_SECRET) for each in words):
        return 2
    if last in ("key", "keys"):
        return 2 if before in _OF_KEY or (before and last == "key" and name.isupper()) else 0
    if last in ("pass", "pwd") and before:
        return 0 if before in _OF_MODEL else 2
    return 1 if last in _MAYBE_SECRET else 0


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


# Texts as they are shown -----------------------------------------------------------------------

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[PX^_][^\x1b\r\n]*\x1b\\"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Escape sequences (ECMA-48), other control characters, and characters that are not shown."""
_LETTER = re.compile(r"\\u00([46][1-9A-Fa-f]|[57][0-9Aa]|3[0-9])")
"""A letter or a digit that JSON has as an escape."""


def shown(text: str) -> str:
    """Return a text as a terminal shows it: no escapes, backspaces carried out; the same lines."""
    if not text.isprintable():
        text = _ESCAPE.sub("", text)
    text = _LETTER.sub(lambda found: chr(int(found[1], 16)), text)
    if "\b" not in text:
        return text
    kept: list[str] = []
    for char in text:
        if char != "\b":
            kept.append(char)
        elif kept and kept[-1] not in "\r\n":
            kept.pop()
    return "".join(kept)


# What looks like a secret ----------------------------------------------------------------------

_START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-F][0-9A-F]))"
_FORM = re.compile(
    _START + "(?:"
    r"(?:hf|api_org|ghp|gho|ghu|ghs|ghr|npm|gsk|r8)_[A-Za-z0-9]{20,}"
    r"|(?:github_pat|dckr_pat|dop_v1|wandb_v1|glpat|gldt|pypi|nvapi|GOCSPX|AGE-SECRET-KEY)"
    r"[-_][A-Za-z0-9_-]{16,}"
    r"|(?:sk|pk|rk)(?:_live_|_test_|[-_](?=[a-z_-]{0,60}[A-Z0-9]))[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|hvs\.[A-Za-z0-9_-]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"
    r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    ")"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
    r"|(?<=discord\.com/api/webhooks/)[\w/-]{20,}"
)
"""How tokens of well-known services look: Hugging Face, GitHub, AWS, Google, Slack, JWT."""
_OF_WANDB = re.compile(r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])(?P<value>[0-9a-f]{40})(?![0-9a-f])")
_LOGIN_IN_URL = re.compile(
    r"(?P<scheme>\w{1,20})://(?P<user>[^\s/@:\"'<>]{0,512})"
    r"(?::(?P<value>(?!\d{1,5}[/?#])[^\s\"'<>]{1,512}))?@(?=[\w\[.-])"
)
_SENT = re.compile(r"(?i:(?P<scheme>basic|bearer))\s+(?P<value>[A-Za-z0-9._~+/-]{6,}={0,2})")
_OF_COMMAND = re.compile(
    r"\b(?:(?:curl|wget)\b[^\n]{0,400}?\s(?:-[uU]|--user|--proxy-user)[= ]+[\"']?[^\s:\"'@/]{1,80}:"
    r"|(?:mysql\w*|sshpass|redis-cli|docker login)\b[^\n]{0,200}?\s-[pa] ?[\"']?"
    r"|(?i:identified (?:with \w{1,40} )?by (?:password )?)[\"'])"
    r"(?P<value>[^\s\"']+)"
)
_OF_PGPASS = re.compile(
    r"(?:^|(?<=\s))[\w.*-]{1,200}:(?:\d{4,5}|\*):[\w*-]{1,80}:[\w*-]{1,80}:(?P<value>\S{6,512})$",
    re.MULTILINE,
)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LINE_OF_KEY = re.compile(
    r"\s*(?:[A-Za-z0-9+/]{1,15}={0,2}|[A-Za-z-]{4,20}: [^\n]*|=[A-Za-z0-9+/]{4})?\s*"
    r"|.{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[\"'\\,n\s]{0,8}"
)
"""A line within a private key, perhaps behind what a log has before each of its lines."""
_KEY_IN_LINE = re.compile(r"[A-Za-z0-9+/=\\]{12,}")

# Values behind the name of a secret ----------------------------------------------------------

_STEM = re.compile(
    r"pass|pwd|pw|secret|credential|token|key|auth|jwt|bearer|sid|sess|sig|cookie|sas|pat|otp|csrf",
    re.IGNORECASE,
)
_LONGEST_NAME = 80
_LEFT = re.compile(r"[\w.-]*\Z")
_RIGHT = re.compile(r"[\w-]{0,80}(?:\.[\w-]{1,80})*")
_QUOTES = r"(?:\\*[\"']|&quot;|&#3[49];|%2[27])"
_QUOTE = re.compile(_QUOTES)
_CLOSING = re.compile(rf"(?P<quote>{_QUOTES})?\]?")
_ASSIGNMENT = re.compile(
    r"\s*(?::\s*(?:str|bytes|string|SecretStr|Optional\[str\]|str \| None)\s*(?==))?"
    r"(?:=>|->|:=|===?|[=:]|%3[AaDd])(?:\s*(?=[bur]?[\"'\\])|[ \t]*)"
)
_PAIR = re.compile(rf"\s*,\s*(?=[bur]?{_QUOTES})")
_OPTION = re.compile(r"\s+(?!-)|\s*,\s*(?!-)")
_SENTENCE = re.compile(r"\s+(?:is|was)\s+(?:(?=[\"'])|(?=\S*\d))")
_QUOTED_AFTER = re.compile(r"\s+(?=[\"'])")
_SPACED = re.compile(r"[ \t]+")
_SPACED_BEFORE = re.compile(r"(?:\bENV|\bsetenv|\bset(?: -\w+)*|\blogin \S+)[ \t]+\Z")
_TYPE = re.compile(rf"(?:\$|[bur]|[A-Za-z_][\w.]{{0,40}}\([bur]?)(?={_QUOTES})")
_TRIPLE = re.compile(r"\"{3}|'{3}")
_BLOCK = re.compile(
    r"[|>][-+0-9]*[ \t]*\n(?P<lines>(?P<indent>[ \t]+)[^\n]*(?:\n(?P=indent)[^\n]*){0,200})"
)
_TAG_END = re.compile(">")
_OF_KEY_BEFORE = re.compile(r"(api|access|secret|private) \Z", re.IGNORECASE)
_BARE = re.compile(
    r"\[secret-\d+\]|(?:(?!%2[267])[^\s\"',;&<>]|(?<=\w)[\"'](?=\w)"
    r"|[,;&](?![\s\"']|\Z|[\w.%#-]{1,80}[=:;]))+"
)
_REST = re.compile(r"[^\r\n\"'}]+")
_YAML_BEFORE = re.compile(r"(?:\A|\n)[ \t]*(?:- )?\Z")
_MOST_QUOTED, _MOST_LINES = 4096, 3
_RANDOM = re.compile(r"(?<![\w/+.-])(?=[A-Za-z_]{0,40}[0-9])[\w+/-]{12,4096}={0,2}(?![\w/])")
_CHANGES = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
_MASK = re.compile(r"\[secret-\d+\]")
_NEAR = 60
"""Characters between the name of a secret and a random word that is taken for it."""


def _name(text: str, at: int) -> tuple[int, int, str] | None:
    """Return where the next name that may be one of a secret stands, and the name."""
    stem = _STEM.search(text, at)
    if stem is None:
        return None
    left = _LEFT.search(text, max(at, stem.start() - _LONGEST_NAME), stem.start())
    right = _RIGHT.match(text, stem.end())
    begin, end = left.start() if left else stem.start(), right.end() if right else stem.end()
    name = text[begin:end]
    if name.lower() == "key" and (of := _OF_KEY_BEFORE.search(text, max(0, begin - 8), begin)):
        name = f"{of[1]}_{name}"
    return begin, end, name


def _without_near(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text without the random words shortly behind the name of a secret."""

    def near(found: re.Match[str]) -> str:
        word = found[0]
        if len(_CHANGES.findall(word)) < 0.45 * len(word):
            return word
        before = _MASK.sub("", text[max(0, found.start() - _NEAR) : found.start()])
        at = 0
        while (name := _name(before, at)) is not None:
            if _rank(name[2]) > 1 or name[2].lower() == "key":
                return replacement(word)
            at = name[1]
        return word

    return _RANDOM.sub(near, text)


def _named(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the values stand that have the names of secrets before them."""
    at = 0
    while (found := _name(text, at)) is not None:
        begin, at, name = found
        value = _behind_separator(text, begin, at) if _rank(name) else None
        if value is None:
            continue
        span = _value_at(text, value, is_line=_has_its_line(text, name, begin, at))
        shown = text[slice(*span)]
        is_placeholder = shown.lower() in name.lower()  # `--password PASSWORD` in a usage
        if is_secret_value(name, shown.strip()) and not is_placeholder:
            yield span
            at = max(at, span[1])


def _behind_separator(text: str, begin: int, end: int) -> int | None:
    """Return where the value of a name at begin:end would start; None: nothing says of one."""
    closing = _CLOSING.match(text, end)
    after = end if closing is None else closing.end()
    name = text[begin:end]
    tried = [_ASSIGNMENT.match(text, after)]
    if closing is not None and closing["quote"]:
        tried.append(_PAIR.match(text, after))
    if name.startswith("-"):
        tried.append(_OPTION.match(text, after))
    if text[begin - 1 : begin] == "<":
        tried.append(_TAG_END.match(text, end))
    tried.append(_SENTENCE.match(text, end))
    if not name.lower().endswith("token"):
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
    typed = _TYPE.match(text, at)
    at = at if typed is None else typed.end()
    quote = _QUOTE.match(text, at)
    if quote is not None:
        inside = _quoted(text, quote)
        if inside is not None:
            return inside
        at = quote.end()
    if is_line:
        rest = _REST.match(text, at)
        return (at, at) if rest is None else rest.span()
    bare = _BARE.match(text, at)
    if bare is None:
        return at, at
    return at, bare.end() if bare[0][0] == "[" else at + len(bare[0].rstrip(")]}.,:;!?\\"))


def _quoted(text: str, quote: re.Match[str]) -> tuple[int, int] | None:
    """Return where the text within quotes stands; None: they are not closed soon."""
    start, mark = quote.end(), quote[0]
    triple = _TRIPLE.match(text, quote.start())
    if triple is not None:
        end = text.find(triple[0], triple.end(), triple.end() + _MOST_QUOTED)
        return None if end < 0 else (triple.end(), end)
    last = start + _MOST_QUOTED
    for found in _QUOTE.finditer(text, start, last):
        if text.count("\n", start, found.start()) >= _MOST_LINES:
            return None
        if found[0] == mark or len(found[0]) < len(mark):
            return start, found.start()
    return None


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with what looks like a secret replaced; it has as many lines as before."""

    def value(found: re.Match[str]) -> str:
        start, end = (each - found.start() for each in found.span("value"))
        return found[0][:start] + replacement(found["value"]) + found[0][end:]

    def login(found: re.Match[str]) -> str:
        user, password = found["user"], found["value"]
        is_token = found["scheme"].endswith(("http", "https")) and _is_token(user)
        user = replacement(user) if is_token else user
        password = "" if password is None else f":{replacement(password)}"
        return f"{found['scheme']}://{user}{password}@"

    def sent(found: re.Match[str]) -> str:
        text = found["value"]
        is_secret = _is_login(text) if found["scheme"].lower() == "basic" else _is_token(text)
        return value(found) if is_secret else found[0]

    if "PRIVATE KEY" in text:
        text = _without_keys(text, replacement)
    text = _FORM.sub(lambda found: replacement(found[0]), text)
    if "://" in text:
        text = _LOGIN_IN_URL.sub(login, text)
    text = _SENT.sub(sent, text)
    for pattern in (_OF_COMMAND, _OF_PGPASS, _OF_WANDB):
        text = pattern.sub(value, text)
    parts, done = [], 0
    for start, end in _named(text):
        lines = (
            replacement(each) if each.strip() else each for each in text[start:end].split("\n")
        )
        parts += [text[done:start], "\n".join(lines)]
        done = end
    return _without_near("".join([*parts, text[done:]]), replacement)


def _is_token(text: str) -> bool:
    return _looks_random(text) or len(text) >= 24


def _is_login(text: str) -> bool:
    """Whether a text is that of HTTP's basic authentication."""
    try:
        decoded = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.decode("utf-8", "replace").isprintable()


def _without_keys(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with the private keys in it replaced, line by line."""
    lines, label = text.split("\n"), ""
    is_within = False
    for number, line in enumerate(lines):
        begin = _BEGIN.search(line)
        start = 0 if begin is None else begin.end()
        if begin is not None:
            label = ""
        elif not is_within:
            continue
        end = _END.search(line, start)
        body = line[start:] if end is None else line[start : end.start()]
        is_within = end is None and (begin is not None or _LINE_OF_KEY.fullmatch(line) is not None)
        is_key = _KEY_IN_LINE.search(body) if begin is not None or end is not None else is_within
        if is_key and body.strip():
            label = label or replacement(body.strip())  # one for all lines of a key
            lines[number] = line[:start] + label + ("" if end is None else line[end.start() :])
    return "\n".join(lines)


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
        yield quote(text, errors="replace")
        yield html.escape(text)
        yield text.encode("utf-8", "replace").hex()
        yield from _base64(text.encode("utf-8", "replace"))
    yield from (line for line in secret.split("\n") if len(line) >= 2 * FEWEST_CHARACTERS)


def _base64(text: bytes) -> Iterator[str]:
    """Yield how bytes stand in the base64 form of a longer text: it depends on what is before."""
    for before in range(3 if len(text) >= _FEWEST_BROKEN else 0):
        encoded = base64.b64encode(bytes(before) + text).decode().rstrip("=")
        # What the bytes around it have a part in is left out.
        first = (before * 8 + 5) // 6
        whole = encoded[first : (before + len(text)) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


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


_BREAK = r"(?:\s|\\\n|[\u2500-\u257f|])"
"""What a secret has within it where a line of it was broken, by a frame for example."""
_BREAKS = re.compile(_BREAK)


def unbroken(secrets: Iterable[str]) -> dict[str, str]:
    """Return, for :func:`replace_broken`, secrets by what they are without breaks."""
    parts = ((_BREAKS.sub("", each), each) for each in secrets)
    return {part: secret for part, secret in parts if len(part) >= _FEWEST_BROKEN}


def replace_broken(text: str, secrets: Mapping[str, str], replacement: Callable[[str], str]) -> str:
    """Return a text without the secrets that stand on several lines of it, which stay as many."""
    joined = _BREAKS.sub("", text)
    for parts, secret in secrets.items():
        if parts in joined:
            pattern = rf"{_BREAK}{{0,200}}".join(map(re.escape, parts))
            text = re.sub(pattern, functools.partial(_without_lines, replacement(secret)), text)
    return text


def _without_lines(label: str, found: re.Match[str]) -> str:
    return re.sub(r"[^\r\n]+", lambda _: label, found[0])


def secret_values(folder: JobFolder, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the secrets of a job that are known here.

    They are the values of variables and options that look secret, in its spec, in its plan and in
    `environ`, and those of the variables of `program.pass_env` in `environ`.
    """
    found = [value for name, value in environ.items() if is_secret(name)]
    for file in (folder.plan_file, folder.resolved_spec_file):
        with contextlib.suppress(ValueError, RecursionError):
            content = read_regular_file(str(file), largest=_LARGEST_FILE) or b"{}"
            found += _secret_fields(json.loads(content), environ)
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
        elif is_secret_value(name, value) and not (name[:1] == value[:1] == "-"):
            yield value
        else:
            yield from _said_to_be_secret(value)


_CODE = re.compile(r"[$(\[{<]")


def _said_to_be_secret(text: str) -> list[str]:
    """Return what looks like a secret in a text, without expressions such as `$TOKEN`."""
    found: list[str] = []

    def note(value: str) -> str:
        found.append(value)
        return value

    replace_secrets(text, note)
    return [each for each in found if _CODE.search(each) is None]
