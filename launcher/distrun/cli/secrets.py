"""Values of variables that look like secrets are not printed: a screen is shared, a log kept."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"
_PATTERNS = (
    "*TOKEN", "*_KEY", "KEY", "*APIKEY", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*SECRET*",
    "*CREDENTIAL*",
)  # fmt: skip


def is_secret(variable: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    name = variable.upper()
    return any(fnmatchcase(name, pattern) for pattern in _PATTERNS)


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """Variables as they may be printed. The tasks get the values themselves."""
    return {name: MASK if is_secret(name) else value for name, value in env.items()}
