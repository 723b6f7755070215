"""The workers of multi_worker_mirrored agree on what they run, and wait for each other."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping

import tensorflow as tf

from mnist_job.data import DataSet
from mnist_job.errors import JobError
from mnist_job.options import Interval, Options


def run_settings(options: Options, data: DataSet, checkpoints: int) -> dict[str, int | str]:
    """The settings that all workers must share, by name."""
    every = options.checkpoint_every or Interval()
    return {
        "data": data.fingerprint,
        "epochs": options.epochs,
        "steps_per_epoch": options.steps_per_epoch,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "model": options.model,
        "optimizer": options.optimizer,
        "learning_rate": str(options.learning_rate),
        "l2": str(options.l2),
        "loop": "fit" if options.fit else str(options.loop),
        "communication": str(options.communication),
        # Saving sums variables over the workers.
        "checkpoints": "some" if options.checkpoint_dir else "none",
        "checkpoints_found": checkpoints,
        "checkpoint_every": every.steps,
        "checkpoint_every_epochs": every.epochs,
    }


def agree(strategy: tf.distribute.Strategy, values: Mapping[str, int | str]) -> None:
    """Checks that all workers have the same values. All must call it, and all raise JobError."""
    numbers = [
        zlib.crc32(each.encode()) if isinstance(each, str) else each for each in values.values()
    ]
    different = []
    for (name, mine), *found in zip(values.items(), *_gather(strategy, numbers), strict=True):
        if len(set(found)) > 1:
            shown = f"here {mine}" if isinstance(mine, str) else ", ".join(map(str, found))
            different.append(f"{name.replace('_', ' ')} ({shown})")
    if different:
        _confirm_gather(strategy)
        raise JobError(
            f"the workers differ in {', '.join(different)}: "
            "give all of them the same arguments and data, and a --checkpoint-dir they share"
        )


def barrier(strategy: tf.distribute.Strategy) -> None:
    """Waits for all workers. None may exit while another still communicates with it."""
    _gather(strategy, [0])
    _confirm_gather(strategy)


def _confirm_gather(strategy: tf.distribute.Strategy) -> None:
    """Waits until all workers have received the last gather; call it before this worker exits.

    A worker that has received the others' numbers could exit before they receive its own. So all
    gather once more: when that returns, all have finished the gather before. The second gather
    itself may fail, because a peer has already exited. That does no harm.
    """
    with contextlib.suppress(tf.errors.OpError):
        _gather(strategy, [0])


def _gather(strategy: tf.distribute.Strategy, mine: list[int]) -> list[list[int]]:
    """Returns the numbers of every replica, in the order of the replicas."""

    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    rows: list[list[int]] = tf.function(gather)().numpy().tolist()
    return rows
