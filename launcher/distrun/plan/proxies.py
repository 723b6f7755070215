"""Whether gRPC would ask a proxy for the way to a task's peers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# As gRPC reads them, in this order, in lower case only (grpc/doc/environment_variables.md).
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def proxy_in_the_way(environ: Mapping[str, str], machines: Sequence[str]) -> str:
    """Which variable sends it to a proxy for which machine, in words; empty where none does.

    The variable's value is not told: it may hold a password.
    """
    proxy = next((name for name in _PROXIES if environ.get(name)), None)
    if proxy is None:
        return ""
    exceptions = next((environ[name] for name in _EXCEPTIONS if environ.get(name)), "")
    machine = _first_not_excepted(exceptions, tuple(machines))
    return f"{proxy} is set, and no_proxy does not name {machine}" if machine else ""


@functools.cache  # nearly all tasks of a job have the same
def _first_not_excepted(exceptions: str, machines: tuple[str, ...]) -> str | None:
    suffixes = tuple(each.strip().lower() for each in exceptions.split(",") if each.strip())
    return next((each for each in machines if not each.lower().endswith(suffixes)), None)
