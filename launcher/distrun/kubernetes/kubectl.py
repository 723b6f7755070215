"""The user's own kubectl: its contexts, its authentication and its proxies hold."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from distrun.agent.protocol import Cause, Code
from distrun.agent.protocol.causes import CauseError

if TYPE_CHECKING:
    from distrun.spec.schedulers import KubernetesSpec

SECONDS = 30.0
"""The limit for a command that answers at once."""
READ_SECONDS = 10.0
"""The limit for one that changes nothing: no webhook is asked."""
_LONGEST = 400
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:")
"""Of kubectl's own log."""
_NOT_FOUND = "(NotFound): "
_REFUSED = re.compile(
    "forbidden|denied the request|unauthorized|must be logged in|credentials|not found"
    "|does not exist|unknown field|is invalid|invalid type|be handled",
    re.IGNORECASE,
)
_KEYS = (
    "go-template={{range $key, $value := .data}}{{$key}} {{end}}"
    "{{range $key, $value := .binaryData}}{{$key}} {{end}}"
)
"""Prints the keys of a Secret or a ConfigMap, and no values."""
_CURRENT = "jsonpath={.current-context} {.contexts[0].context.namespace}"


def prefix(settings: KubernetesSpec | None) -> list[str]:
    """Return kubectl with the context and the namespace of a spec. Raises CauseError."""
    return words("", "") if settings is None else words(settings.context, settings.namespace)


def words(context: str | None, namespace: str | None) -> list[str]:
    """Return kubectl with a context and a namespace; empty or None: the current one.

    Raises CauseError: it is not in PATH.
    """
    found = shutil.which("kubectl")
    if found is None:
        raise CauseError(Cause(Code.KUBECTL_NOT_STARTED, errno=errno.ENOENT))
    command = [found]
    command += [f"--context={context}"] if context else []
    return command + ([f"--namespace={namespace}"] if namespace else [])


def pinned(context: str | None, namespace: str | None) -> tuple[str | None, str | None]:
    """Return the context and the namespace that hold now: `kubectl config` may change them.

    None: kubectl has none, as in a pod, or is not here.
    """
    with contextlib.suppress(CauseError):
        command = [*words(context, namespace), "config", "view", "--minify", "-o", _CURRENT]
        answer = run(command, seconds=READ_SECONDS)
        current, _, own = answer.rpartition("\n")[2].rpartition(" ")
        return current, namespace or own or "default"
    return context, namespace


def version() -> str:
    """Return which kubectl is called, and its version. Raises CauseError."""
    command = words(None, None)
    answer = run([*command, "version", "--client", "-o", "json"], seconds=READ_SECONDS)
    with contextlib.suppress(TypeError, LookupError):
        return f"kubectl {parsed(answer)['clientVersion']['gitVersion']}, {command[0]}"
    raise _unexpected(answer)


def run(command: Sequence[str], given: str = "", seconds: float = SECONDS, **options: Any) -> str:
    """Return what a command prints; `given`: its standard input. Raises CauseError."""
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
            **options,
        )
    except OSError as error:
        raise CauseError(Cause(Code.KUBECTL_NOT_STARTED, errno=error.errno or 0)) from error
    except subprocess.TimeoutExpired as error:
        errors: bytes = error.stderr or b""  # whatever `encoding` says
        said = last_words(errors.decode("utf-8", "replace"))
        text = f"it had not answered within {round(seconds, 1):g} s{said and ': '}{said}"
        raise CauseError(Cause(Code.KUBECTL_FAILED, text=text, signal=signal.SIGKILL)) from None
    if done.returncode:
        raise CauseError(failure(done.returncode, done.stderr))
    return done.stdout


def require(words: list[str], objects: Iterable[str]) -> None:
    """Raise CauseError for those objects that are known to be missing.

    Each is written like `secret/NAME`, or like `secret/NAME KEY` if it must have that key.
    """
    missing = []
    wanted: dict[str, list[str]] = {}
    for each in objects:
        name, _, key = each.partition(" ")
        wanted.setdefault(name, []).extend([key] if key else [])
    for name, keys in wanted.items():
        try:
            found = run([*words, "get", name, "-o", _KEYS], seconds=READ_SECONDS).split()
        except CauseError as error:
            if error.cause.signal:  # it hangs, and would do so for each
                break
            if _NOT_FOUND in error.cause.text:
                missing.append(error.cause.text.partition(_NOT_FOUND)[2])
        else:
            named = name.replace("/", ' "')
            missing += [f'key "{each}" of {named}" not found' for each in keys if each not in found]
    if missing:
        raise CauseError(failure(1, f"Error from server {_NOT_FOUND}{'; '.join(missing)}"))


def items(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects that a `kubectl get ... -o json` prints. Raises CauseError."""
    answer = run(command, seconds=READ_SECONDS)
    with contextlib.suppress(TypeError, LookupError):
        found = parsed(answer)["items"]
        if isinstance(found, list) and all(isinstance(each["metadata"], dict) for each in found):
            return found
    raise _unexpected(answer)


def parsed(answer: str) -> Any:
    """Return the JSON in an answer, around which a wrapper may have printed lines.

    Raises CauseError: there is none.
    """
    begin = re.search(r"^\{", answer, re.MULTILINE)
    try:
        return json.JSONDecoder().raw_decode(answer, begin.start() if begin else 0)[0]
    except (ValueError, RecursionError):
        raise _unexpected(answer) from None


def _unexpected(answer: str) -> CauseError:
    text = f"its answer is not as expected: {' '.join(answer[:_LONGEST].split())}"
    return CauseError(Cause(Code.KUBECTL_FAILED, text=text, status=0))


def failure(status: int, errors: str, code: Code = Code.KUBECTL_FAILED) -> Cause:
    """Return why a kubectl ended, from its exit status as Popen has it and its last words."""
    ended = {"signal": -status} if status < 0 else {"status": status}
    return Cause(code, text=last_words(errors))._replace(**ended)


def last_words(errors: str) -> str:
    """Return the line of kubectl's standard error that says most."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    lines = [line for line in lines if not _LOG_LINE.match(line)] or lines
    faults = [line for line in lines if line.startswith("* ")]  # of what the line before names
    if faults and lines[-1] == faults[-1]:
        return " ".join(lines[-len(faults) - 1 :])[:_LONGEST]
    own = [line for line in lines if line.startswith(("error", "Error", "Unable"))]
    return (own or lines or [""])[-1].partition("; if you choose to ignore")[0][:_LONGEST]


def is_refused(cause: Cause) -> bool:
    """Whether what was asked is refused, and not only the API server out of reach."""
    return _REFUSED.search(cause.text) is not None
