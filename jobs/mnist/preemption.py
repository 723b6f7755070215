"""SIGTERM: all workers save at the same step and exit, so that a later launch can go on there."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_CODE = 42
"""What TensorFlow's own PreemptionCheckpointHandler exits with, by default."""


class Preempted(Exception):  # noqa: N818 - not an error: the run ends early, its state saved
    """Every worker has saved at this step and is to exit with EXIT_CODE."""


class Preemption:
    """Runs training steps, and acts between two of them on a SIGTERM to any worker.

    TensorFlow's handler makes the workers agree on the step; what is saved, and where, is the
    job's. (Given a manager that has checkpoints, the handler would restore its counter of steps
    from them on the chief alone, and the workers would never agree.)
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, save: Callable[[], None], unused: str
    ) -> None:
        """Takes over SIGTERM.

        Args:
            strategy: its cluster resolver tells which workers must agree.
            save: saves the run's state; called on all workers at the same step.
            unused: a path for the handler's manager, where nothing is ever written or read.
        """
        with _no_metadata_service():
            self._handler = tf.distribute.experimental.PreemptionCheckpointHandler(
                strategy.cluster_resolver,
                tf.train.CheckpointManager(tf.train.Checkpoint(), unused, max_to_keep=1),
                termination_config=tf.distribute.experimental.TerminationConfig(
                    exit_fn=_leave, save_fn=save
                ),
            )

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        """Runs one step.

        Raises:
            Preempted: instead, after saving.
        """
        return self._handler.run(step, *args)


def _leave() -> None:
    raise Preempted


@contextmanager
def _no_metadata_service() -> Iterator[None]:
    """Makes TensorFlow's handler watch SIGTERM, and nothing else, on every machine.

    It asks a cloud's metadata service whether it is there (5 s and more where a network drops
    the question), and where it is, ignores SIGTERM. An address that refuses at once settles it.
    """
    ours = {"GCE_METADATA_IP": "127.0.0.1:1", "NO_PROXY": "*", "no_proxy": "*"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
