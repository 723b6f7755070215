"""Connects to a TPU, or reports within seconds that there is none."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKUP_SECONDS = 20.0
"""Time limit for the cloud to resolve the name, and to connect to the TPU."""
INITIALIZE_SECONDS = 300.0
"""Time limit for the TPU system to start; large ones take minutes."""
_NAME_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
"""The variables that TensorFlow's resolver reads."""


class NoTpuError(Exception):
    """There is no TPU with that name, or it does not answer; the message says which and why."""


def connect(name: str | None) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Returns the resolver of a TPU that is ready.

    Args:
        name: a TPU's name, `grpc://HOST:PORT`, or `local`; None: the name in the environment, or
            `local`.

    Raises:
        NoTpuError: there is none.
    """
    name = name or next(filter(None, map(os.environ.get, _NAME_VARIABLES)), "local")
    try:
        resolver = _within(LOOKUP_SECONDS, lambda: _find(name))
        _within(INITIALIZE_SECONDS, lambda: _initialize(resolver))
    # An unknown name can raise any of these, from urllib, Google's client or TensorFlow.
    except (OSError, ImportError, RuntimeError, TypeError, ValueError, tf.errors.OpError) as error:
        reason = getattr(error, "message", None) or str(error) or type(error).__name__
        where = "on this machine" if name == "local" else f"at {name!r}"
        raise NoTpuError(
            f"no TPU {where} ({_first_sentence(reason)}); name one with --tpu, "
            "or choose another --strategy"
        ) from error
    return resolver


def _find(name: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
    for addresses in resolver.cluster_spec().as_dict().values():
        for address in addresses:
            # TensorFlow itself would try for minutes.
            split = urlsplit(address if "://" in address else f"grpc://{address}")
            with socket.create_connection((split.hostname, split.port or 8470), LOOKUP_SECONDS):
                pass
    return resolver


def _initialize(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> None:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Calls a function in a thread; returns its result or raises its exception.

    The thread gives a time limit to name servers and to TensorFlow, which have none.

    Raises:
        TimeoutError: it has not returned in time.
    """
    outcome: list[Any] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return outcome[0]


def _first_sentence(text: str) -> str:
    return text.strip().partition("\n")[0].partition(". ")[0][:200].rstrip(".")
