"""What is taken for a secret in a text: by its form, or by the name before it.

Each pattern takes a time that grows with the length of a text, and not with its square: a log may
have a line of megabytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

_FEWEST_CHARACTERS = 4
_NO_VALUE = re.compile(
    r"true|false|none|null|yes|no|on|off|auto|default|\d{1,5}|enabled|disabled|required|missing"
    r"|[*.x]+|\[[A-Z]+\]|.*\[secret-\d+\]?|<[^<>]*>|\d+\.\d+"
    r"|[\d.]+ ?(?:[munµ]?s|%|[kMG]i?B)(?:/\w+)?|[\d.]{1,12} ?[A-Za-z]{1,12}/s"
    r"|[~/][\w.-]*(?:/[\w.-]+)+\.\w{1,5}",
    re.IGNORECASE,
)
"""Numbers, measurements, placeholders, paths of files, and words of languages and about secrets."""
_MIXED = re.compile(r"(?=[^/~.(])(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[\s\S]{8}")
"""A value that is no word."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURE = re.compile(
    r"(?:pass(?:words?|wort|wd|phrase|code)|secrets?|credentials?|(?:api|access|private|secret|auth)key)(?:_|\Z)"
    r"|(?:token|authorization|jwt|bearer|(?:api|auth|access|hf)_tokens)\Z|_(?:pass|pwd)\Z"
    r"|(?:\A|_)(?:api|access|private|secret|auth|account|(?:pre)?shared|master|encryption|signing|ssh|license"
    r"|subscription|service|storage|deploy|client|admin|webhook|app|ssl|tls|hmac|aes|fernet|wandb)_keys?\Z"
)
"""What makes a name, its words in small letters and joined by `_`, one of a secret."""
_MAYBE = re.compile(
    r"(?:\A|_)(?:(?:ssh|user|db|store)?pass|pwd|(?:bind)?pw|psk|creds?|auth|sid|session|[a-z]*sess(?:ion)?id|sig|signature|cookie|sas|pat|otp|csrf)\Z"
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
    return 1 if _MAYBE.search(words) or name == "KEY" else 0


def is_secret(variable: str) -> bool:
    return variable.upper() == "KEY" or _rank(variable.upper()) > 1 or _rank(variable) > 1


def mask_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Variables for printing: values whose names look like secrets become `***`.

    Screens are shared and output is kept. The tasks get the real values.
    """
    return {name: "***" if is_secret(name) else value for name, value in env.items()}


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name in a text: of a variable, a field or an option."""
    if len(value) < _FEWEST_CHARACTERS or _NO_VALUE.fullmatch(value):
        return False
    return _rank(name) > 1 or (_rank(name) > 0 and _MIXED.match(value) is not None)


_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[PX^_][^\x1b\r\n]*\x1b\\|\x1b[ -/]*[0-~]|[^\x08\r\n]\x08"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Escape sequences (ECMA-48), what is overwritten, and characters that are not shown."""
_ZERO = re.compile(r"\0(?:(?=[A-Z_][A-Z\d_]{0,80}=)|(--?[A-Za-z][\w-]{0,80})\0)")
"""What separates the entries of /proc/PID/environ, and an option of /proc/PID/cmdline."""


def shown(text: str) -> str:
    """Return a text as a terminal shows it."""
    return _ESCAPE.sub("", _ZERO.sub(r"\n\1 ", text))


_CREDENTIAL = r"(?:(?=[^\s@:/]{0,99}\d)[\w.~+-]{8,512}|[\w.~+-]{24,512})"
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"((?:(?!-----BEGIN)[\s\S]){1,16384}?(?=-----END )"
    r"|[^\n]*(?:\n[^\n]{0,80}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}[ \t\r]*(?=\n|\Z))*)"
)
"""A private key to its end; if that is missing, as far as its lines look like base64."""
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
        *(_PEM, _OF_SERVICE),
        r"\b(?:curl|wget)\b[^\n]{0,400}?\s(?:-[uU]|--\S*user)[= ]*[\"']?[^\s:\"'@/]+:([^\s\"']+)",
        r"\b(?:mysql\w*|mongo\w*|sshpass|redis-cli|twine|(?:docker|podman|az)\slogin)\b[^\n]{0,200}?\s-[pa]\s?[\"']?([^\s\"']+)",
        r"(?:hooks\.slack\.com/services|discord\w*\.com/api/webhooks|office\.com/webhook\w*)/([\w/@-]{20,})",
        r"conda[\w.:-]{0,80}/t/([\w-]{8,512})",
        rf"[?&](?:key|code)=({_CREDENTIAL})",
        r"(?:Auth|login)\([bu]?[\"'][^\"'\n]{0,80}[\"'], ?[bu]?[\"']([^\"'\n]{4,512})[\"']",
        r"\becho\s+[\"']?([^\s\"'|]{4,512})[\"']?\s*\|[^\n]{0,80}?(?:--password-stdin|\bsudo -S)",
        r"[\"']key[\"']:[ ]?[\"']([0-9a-f]{32})[\"']",
        r"(?i:wandb)[^\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])",
        rf"(?<=http)s?://({_CREDENTIAL}(?::[^\s\"'<>/@]{{0,512}})?)@(?=[\w\[.-])",
        r"://[^\s/@:\"'<>]{0,512}:((?!\d{1,5}[/?#])[^\s\"'<>]{1,512})@(?=[\w\[.-])",
        r"%3A%2F%2F[^\s%]{0,512}%3A((?!\d{1,5}%2F)[^\s&]{1,512}?)%40(?=[\w.-])",
        rf"(?i:bearer)\s+({_CREDENTIAL}[\w.~+/-]*={{0,2}})",
        r"(?i:basic|auth plain)\s+((?=\S{0,99}\d)[A-Za-z0-9+/]{12,512}={0,2})(?![\w-])",
    )
]
"""In each pattern, the group is the secret."""
_NAME = re.compile(
    r"(?:(?<![\w.\\-])|(?<=\\[nrt])|(?<=%[2-7][0-9A-Fa-f])"
    r"|(?<=(?:%25|u00)[2-7][0-9A-Fa-f]))(?!secret-\d+\])"
    r"(?:(?i:api|access|secret|private|license|encryption|signing|master|storage|account)"
    r" (?=(?i:keys?)\b))?"
    r"[A-Za-z_.-][\w.-]{0,200}\w"
)
_QUOTE = r"(?:\\*(?:[\"']|u002[27])|%(?:25)?2[27]|&(?:quot|#39|#x27);|\*\*|[`\u2018-\u201d])"
_SPACE = r"\s{0,20}"
_REMARK = r"(?:[ ]?\([\w ./:-]{1,40}\)|\[[^\[\]\n]{1,40}\])"
_TYPE = rf"(?::[ ]?[\w&][\w.\[\] |]{{0,40}}(?= =)|{_REMARK}(?=[ ]?[:=]))?"
_SCHEME = r"(?:(?i:bearer|basic|token)\s)?"
_ITEM = r"(?:[ \t]*\r?\n(?:[ \t]{0,40}- |(?=\S*\d)(?=[\w+/=.~-]{12,512}\s*(?:\n|\Z)))|[ \t]*)"
_LIST = rf"[\[({{](?={_SPACE}[bur]?\\*[\"'])[^\[\](){{}}]{{1,4096}}(?=[\])}}])"
_SIGN = (
    rf"(?P<sign>{_TYPE}{_SPACE}(?:=>|->|<-|:=|[+?]?={{1,3}}|\.{{4,80}}:?"
    rf"|: invalid \w{{1,20}} value:|[:\uff1a\uff1d]|%(?:25)?3[AaDd])|>(?=[^\s=])"
    rf"|</\w{{1,20}}>\s{{0,20}}<\w{{1,20}}>"
    rf"|[,\s{{]{{1,20}}{_QUOTE}?(?:[Vv]alue|default){_QUOTE}?[ ]?[:=]"
    rf"|\s(?:(?:is|was|set to|provided|received|refreshed):?|(?:for|of) \S{{1,60}}:)\s"
    rf"(?=[\"']|\S{{0,99}}\d)"
    rf"|(?(end){_SPACE},{_SPACE}(?=[bur]?{_QUOTE})|(?!)))?"
)
_QUOTED = (
    rf"{_SPACE}(?:\$|[bur]|[A-Za-z_][\w.]{{0,40}}\((?:\w{{1,20}}=)?[bur]?)?"
    rf"(?P<open>\"{{3}}|'{{3}}|{_QUOTE}){_SCHEME}(?P<quoted>(?:(?!\n\n)[\s\S]){{0,4096}}?)"
    r"(?<!\\)(?P=open)"
)
_LONGEST = 512
"""Characters of a bare value by which it is judged."""
_UNIT = r"(?:[^\s\"',;&<>]|(?<=\w)[\"'](?=\w)|[,;&](?![\s\"']|\Z|[\w.%#-]{1,80}[=:;]))"
_UNQUOTED = rf"(?P<word>{_UNIT}{{1,{_LONGEST}}})"
_MORE = re.compile(f"{_UNIT}*")
_BARE = (
    rf"(?(sign){_ITEM}|[,;~\s|\\\u2502\u2503]{{1,20}}(?:--? )?)"
    rf"(?P<bare>{_LIST}|(?:[bur]?{_QUOTE})?{_SCHEME}{_UNQUOTED})"
)
_VALUE = re.compile(rf"(?P<end>{_QUOTE})?\]?{_SIGN}(?:{_QUOTED}|{_BARE})")
"""What may follow the name of a secret: a sign, and a value, in quotes, bare or of YAML."""
_REST = re.compile(r"[^\r\n\"'}]{0,4096}")
_LINE_START = re.compile(r"(?:\A|\n)([ \t]*(?:- )?)[\"']?\Z")
_LINES = re.compile(
    r"[\"']?:[ \t]*(?:[|>][-+\d]{0,2}[ \t]*)?\r?\n"
    r"(?P<lines>(?P<indent>[ \t]*(?:- )?)[^\s#][^\n]*(?:\n(?P=indent)[^\n]*){0,200})"
)
"""What stands in YAML below a key."""


def replace_secrets(text: str, replacement: Callable[[str], str]) -> str:
    def without(found: re.Match[str]) -> str:
        start, end = found.start(1) - found.start(), found.end(1) - found.start()
        return found[0][:start] + replacement(found[1]) + found[0][end:]

    for pattern in _FORMS:
        text = pattern.sub(without, text)
    parts, done = [], 0
    for found in _NAME.finditer(text):
        name, (start, end) = found[0], found.span()
        if start < done or not _rank(name):
            continue
        line = _LINE_START.search(text, max(0, start - 80), start)
        value = _LINES.match(text, end) if line else None
        if not (line and value and len(value["indent"]) > len(line[1])):
            value = _VALUE.match(text, end)
        if value is None:
            continue
        kinds = value.groupdict()
        kind = next(k for k in ("lines", "quoted", "word", "bare") if kinds.get(k) is not None)
        hidden = value[kind]
        if kind == "word":
            is_header = name.lower().endswith(("authorization", "cookie"))
            is_yaml = _rank(name) > 1 and " " not in name and text[end : end + 2] == ": "
            if is_header or (is_yaml and line):
                hidden = (_REST.match(text, value.start(kind)) or value)[0].rstrip()
            else:
                hidden = hidden.rstrip(")]}.,:;!?\\")
        is_token = name.lower().endswith("token")
        is_option = name[0] == "-" and hidden[:1] != "-"
        is_quoted = kind == "quoted" and not is_token
        is_meant = kinds.get("sign", ":") or is_quoted or is_option or _MIXED.match(hidden)
        # `--password PASSWORD` is a usage, `{'token': {...}}` the parameters of a model.
        is_other = hidden.lower() in name.lower() or (is_token and hidden[:1] == "{")
        if is_meant and not is_other and is_secret_value(name, hidden.lstrip("({")):
            parts += [text[done : value.start(kind)], replacement(hidden)]
            done = value.start(kind) + len(hidden)
            rest = _MORE.match(text, done) if len(hidden) == _LONGEST else None
            done = done if rest is None else rest.end()
    return "".join([*parts, text[done:]])
