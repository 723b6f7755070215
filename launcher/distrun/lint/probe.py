"""Asks an interpreter which modules it has. Runs in that interpreter: Python 3.8 or newer."""

# ruff: noqa: E402, UP
from __future__ import annotations

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
from re import Pattern
from typing import Any

_KERAS = re.compile(r"keras-(\d+)\.")
_TENSORFLOW = re.compile(r"(?:tensorflow|tf_nightly)(?:_\w+)?-(\d+)\.(\d+)")


def answer(names: Iterable[str]) -> dict[str, Any]:
    """Return which of some modules are missing, and the versions of tf.keras and TensorFlow.

    No module is imported. `keras` is the first number of its version, None if that is unknown;
    `tensorflow` are the first two, as text, empty if they are unknown.
    """
    missing = [name for name in names if not _exists(name)]
    tensorflow, keras = _version("tensorflow", _TENSORFLOW), _version("keras", _KERAS)
    if tensorflow is not None and tensorflow < (2, 16):
        keras = (2,)  # TensorFlow's own
    elif tensorflow is None:
        keras = None
    version = ".".join(map(str, tensorflow or ()))
    return {"missing": missing, "keras": keras and keras[0], "tensorflow": version}


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except Exception:  # noqa: BLE001 - a finder of the user's own may raise anything
        return True


def _version(name: str, pattern: Pattern[str]) -> tuple[int, ...] | None:
    """Return the numbers in the name of a package's metadata, which lies beside it."""
    try:
        spec = importlib.util.find_spec(name)
        folder = os.path.dirname(os.path.dirname(str(spec.origin))) if spec else ""
        found = [pattern.match(each) for each in os.listdir(folder) if each.endswith("-info")]
    except Exception:  # noqa: BLE001 - see above
        return None
    versions = [tuple(int(part) for part in each.groups()) for each in found if each]
    return max(versions) if versions else None


def syntax_errors(paths: Iterable[str]) -> dict[str, list[Any]]:
    """Return why this interpreter cannot parse some files: line, column and message of each."""
    import ast
    import tokenize
    import warnings

    warnings.simplefilter("ignore")
    errors = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                ast.parse(file.read())
            with tokenize.open(path) as lines:  # comments, too, must be in the file's encoding
                lines.read()
        except SyntaxError as error:
            errors[path] = [error.lineno or 1, error.offset or 1, error.msg]
        except UnicodeDecodeError as error:
            errors[path] = [1, 1, str(error)]
        except Exception:  # noqa: BLE001, S112 - it may nest too deeply, or be gone
            continue
    return errors


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    errors = syntax_errors(asked["files"])
    # From here on, nothing may be imported: a module of the program could have that name.
    sys.path[:] = [asked["folder"], *_path]
    given = {**answer(asked["names"]), "errors": errors}
    given["version"] = ".".join(map(str, sys.version_info[:2]))
    json.dump(given, sys.stdout)
