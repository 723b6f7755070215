"""A worker or ps of a parameter-server cluster: it runs what the chief sends."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import tensorflow as tf

from preemption import EXIT_CODE
from process_data import ProcessData

if TYPE_CHECKING:
    from cluster import Task
    from digits import Digits
    from startup import StartUpGuard

SHUTDOWN_SECONDS = 8.0
"""How long a task continues after SIGTERM, so that the chief can save: less than the 10 s that
launchers and clusters usually give."""
_PROBE_SECONDS = 0.1


class ServerError(Exception):
    """The server cannot be started: the message says why."""


def serve(task: Task, digits: Digits | None, guard: StartUpGuard) -> None:
    """Runs TensorFlow's server. Never returns: the chief exits without telling its servers.

    Args:
        task: this task; its cluster names the chief.
        digits: the training data of a worker; None for a ps.
        guard: handles SIGTERM, which a server blocked in TensorFlow could not.

    Raises:
        ServerError: it cannot be started.
    """
    data = ProcessData(task.index, digits)
    guard.on_signal(lambda: _leave(data, task.addresses("chief")))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto()
    if (os.cpu_count() or 1) < task.count("worker") + 1:
        # As in TensorFlow's tutorial: with fewer threads, workers can wait for each other forever.
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


def _leave(data: ProcessData, chief: tuple[str, ...]) -> None:
    """Ends this process after SIGTERM, when the chief no longer needs it.

    The variables of a ps are lost with it. So the chief is told, saves and exits. The chief can
    continue without a worker.
    """
    data.announce_shutdown()
    deadline = time.monotonic() + SHUTDOWN_SECONDS
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
