"""Asks an interpreter for its versions, and which modules it has. Runs in it: Python 3.8 or newer.

Agents run this text with `-c`; its arguments are then the script, or an empty word, and the names
of modules. Without arguments, standard input has the question as JSON. No module is imported but
those of the standard library: other users may have written a `json.py` into the working folder, and
TensorFlow takes 2 s and 670 MB.
"""

# ruff: noqa: E402, FA, I002, UP
# Without `from __future__ import annotations`: in its place, Python before 3.11 imports the
# `__future__.py` of the working folder.
import os
import sys

_path = sys.path[not getattr(sys.flags, "safe_path", False) :]
if __name__ == "__main__":
    # PYTHONPATH of the program may name its own folders: nothing of them is imported.
    stdlib = os.path.dirname(os.__file__)
    sys.path[:] = [
        each for each in _path if each.startswith(stdlib) or each.endswith("/lib-dynload")
    ]

import importlib.util
import json
import re
from collections.abc import Iterable
from typing import Any

_KERAS = r"keras-(\d[^-]*)"
_TENSORFLOW = (
    r"(?:tensorflow|tf_nightly|intel_tensorflow)"
    r"(?:_(?:cpu|gpu|intel|rocm|cpu_aws|aarch64|macos))?-(\d[^-]*)"
)


def answer(names: "Iterable[str]") -> "dict[str, Any]":
    """Return the versions of Python, TensorFlow and tf.keras, and which modules are missing.

    `tensorflow` is empty if it is not there, and `unknown` if it does not say. `keras` is the first
    number of its version, None if that is unknown.
    """
    tensorflow, keras = _version("tensorflow", _TENSORFLOW), _version("keras", _KERAS)
    numbers, first = _numbers(tensorflow), _numbers(keras)[:1]
    if numbers and numbers < [2, 16]:
        first = [2]  # TensorFlow's own
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "tensorflow": tensorflow,
        "keras": first[0] if numbers and first else None,
        "has_tf_keras": _exists("tf_keras"),
        "missing": [name for name in names if not _exists(name)],
    }


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except Exception:  # noqa: BLE001 - see below
        return True


def _version(name: str, pattern: str) -> str:
    """Return the version in the name of a package's metadata, or in its text; empty: it is absent.

    Its folder may be one that cannot be read: then it is absent, too.
    """
    for folder in sys.path:
        try:
            names = " ".join(os.listdir(folder or "."))
        except OSError:
            continue
        found = re.findall(f"(?:^| ){pattern}[.](?:dist|egg)-info", names)
        if found:
            return str(max(found, key=_numbers))
    try:
        origin = getattr(importlib.util.find_spec(name), "origin", None)
        if origin is None:
            return ""
        with open(origin, encoding="utf-8", errors="replace") as file:
            literal = re.search(r"(?m)^__version__\s*=\s*['\"]([^'\"]+)", file.read())
    except Exception:  # noqa: BLE001 - a finder of the user's own may raise anything
        return ""
    return literal[1] if literal else "unknown"


def _numbers(version: str) -> "list[int]":
    return [int(each) for each in re.findall(r"\d+", version)]


def syntax_errors(paths: "Iterable[str]") -> "dict[str, tuple[int, int, str]]":
    """Return why this interpreter cannot parse some files: line, column and message of each."""
    import ast
    import tokenize
    import warnings

    errors = {}
    for path in paths:
        try:
            with warnings.catch_warnings(), open(path, "rb") as file:
                warnings.simplefilter("ignore")
                ast.parse(file.read())
            with tokenize.open(path) as lines:  # comments, too, must be in the file's encoding
                lines.read()
        except SyntaxError as error:
            errors[path] = (max(error.lineno or 1, 1), max(error.offset or 1, 1), error.msg)
        except ValueError as error:  # not the file's encoding; before Python 3.12: a null byte
            errors[path] = (1, 1, str(error))
        except Exception:  # noqa: BLE001, S112 - it may nest too deeply, or be gone
            continue
    return errors


if __name__ == "__main__":
    asked: "dict[str, Any]" = {"names": sys.argv[2:], "files": []}
    begin = "\ndistrun-versions:"
    if len(sys.argv) > 1:
        asked["folder"] = os.path.dirname(sys.argv[1])
    else:
        asked, begin = json.load(sys.stdin), ""
    errors = syntax_errors(asked["files"])
    # From here on, nothing may be imported: a module of the program could have that name.
    sys.path[:] = [asked["folder"], *_path]
    given = json.dumps({**answer(asked["names"]), "errors": errors})
    sys.stdout.write(f"{begin}{given}\n")
