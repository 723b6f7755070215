"""A worker or ps of a parameter-server cluster: it does what the chief has it do."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import tensorflow as tf

from handout import Handout
from preemption import EXIT_CODE

if TYPE_CHECKING:
    from cluster import Task
    from digits import Digits
    from startup import StartUpGuard

LINGER_SECONDS = 8.0
"""How long a task that was told to end goes on for the chief, which may have to save: less than
the 10 s that launchers and clusters give at least."""
_PROBE_SECONDS = 0.1


class ServerError(Exception):
    """The server cannot be started: the text says why."""


def serve(task: Task, digits: Digits | None, guard: StartUpGuard) -> None:
    """Runs TensorFlow's server; never returns: the chief ends without a word to it.

    Args:
        task: this one; its cluster names the chief.
        digits: what a worker trains on; a ps needs none.
        guard: has SIGTERM, which a server blocked in TensorFlow could not act on.

    Raises:
        ServerError: it cannot be started.
    """
    handout = Handout(task.index, digits)
    guard.on_signal(lambda: _leave(handout, task.addresses("chief")))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto()
    if (os.cpu_count() or 1) < task.count("worker") + 1:
        # As in TensorFlow's tutorial: with fewer, workers that wait for each other can hang.
        config.inter_op_parallelism_threads = task.count("worker") + 1
    try:
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=task.role,
            task_index=task.index,
            config=config,
            protocol=resolver.rpc_layer or "grpc",
        )
    except tf.errors.OpError as error:
        raise ServerError(f"{task.name} cannot serve: {error.message}") from error
    print(f"{task.name} serves at {task.addresses(task.role)[task.index]}", flush=True)
    server.join()


def _leave(handout: Handout, chief: tuple[str, ...]) -> None:
    """Ends this process after SIGTERM, as soon as the chief has no more need of it.

    What a ps holds is lost with it, so the chief is told, saves and ends. Without a worker the
    chief goes on.
    """
    handout.say_leaving()
    deadline = time.monotonic() + LINGER_SECONDS
    while any(map(_answers, chief)):
        if time.monotonic() > deadline:
            os._exit(128 + signal.SIGTERM)
        time.sleep(_PROBE_SECONDS)
    os._exit(EXIT_CODE)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 1.0):
            return True
    except OSError:
        return False
