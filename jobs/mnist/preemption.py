"""SIGTERM: all workers save at the same step and exit, so that a later launch can resume."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_CODE = 42
"""The default exit code of TensorFlow's own PreemptionCheckpointHandler."""


class Preempted(Exception):  # noqa: N818 - not an error: the run ends early, and its state is saved
    """Every worker has saved at this step and must exit with EXIT_CODE."""


class Preemption:
    """Runs training steps, and handles a SIGTERM to any worker between two of them.

    TensorFlow's handler makes the workers agree on a step. The job itself saves. (If the handler's
    manager had checkpoints, the handler would restore its counter of steps from them on the chief
    only, and the workers would never agree.)
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, save: Callable[[], None], unused: str
    ) -> None:
        """Installs the handler of SIGTERM.

        Args:
            strategy: its cluster resolver names the workers.
            save: saves the run's state; called on all workers at the same step.
            unused: a path for the handler's manager, which never writes or reads there.
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
            Preempted: after saving, instead of running the step.
        """
        return self._handler.run(step, *args)


def _leave() -> None:
    raise Preempted


@contextmanager
def _no_metadata_service() -> Iterator[None]:
    """Makes TensorFlow's handler watch only SIGTERM, on every machine.

    The handler looks for a cloud's metadata service, and ignores SIGTERM if there is one. The
    search takes 5 s and more if the network drops packets. An address that refuses at once ends it.
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
