"""Finding a TPU, or saying within seconds that there is none."""

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
"""For a cloud's answer where a name is, and for the TPU there to be reached."""
INITIALIZE_SECONDS = 300.0
"""For the TPU system to start; large ones take minutes."""
_NAME_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
"""Where TensorFlow's resolver looks."""


class NoTpuError(Exception):
    """There is no TPU by that name, or it does not answer; the text says which and why."""


def connect(name: str | None) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Returns the resolver of a TPU that is ready.

    Args:
        name: a TPU's name, `grpc://HOST:PORT`, or `local`; None: what the environment names,
            else `local`.

    Raises:
        NoTpuError: there is none.
    """
    name = name or next(filter(None, map(os.environ.get, _NAME_VARIABLES)), "local")
    try:
        resolver = _within(LOOKUP_SECONDS, lambda: _find(name))
        _within(INITIALIZE_SECONDS, lambda: _initialize(resolver))
    # A name that leads nowhere ends in any of these, of urllib's, Google's client's or
    # TensorFlow's making.
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
            # TensorFlow itself would go on trying for minutes.
            split = urlsplit(address if "://" in address else f"grpc://{address}")
            with socket.create_connection((split.hostname, split.port or 8470), LOOKUP_SECONDS):
                pass
    return resolver


def _initialize(resolver: tf.distribute.cluster_resolver.TPUClusterResolver) -> None:
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Returns what the call returns, or raises what it raises, or TimeoutError.

    In a thread: neither a name server nor TensorFlow's connecting has a time limit of its own.
    """
    outcome: list[Any] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001 - raised again by the caller's thread
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
