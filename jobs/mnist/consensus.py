"""Checks that all workers of a cluster run with the same settings, and a barrier for them."""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arguments import Arguments
    from cluster import Task
    from digits import Digits


class DisagreementError(Exception):
    """The workers have different settings: the message says which."""


def run_settings(arguments: Arguments, digits: Digits) -> dict[str, int | str]:
    """The settings that all workers must share, by name."""
    asked, every = arguments, arguments.checkpoint_every
    return {
        "data": digits.fingerprint,
        "epochs": asked.epochs,
        "steps_per_epoch": asked.steps_per_epoch,
        "batch_size": asked.batch_size,
        "seed": asked.seed,
        "model": asked.model,
        "optimizer": asked.optimizer,
        "learning_rate": str(asked.learning_rate),
        "l2": str(asked.l2),
        "loop": "fit" if asked.fit else asked.loop,
        "steps_per_call": asked.steps_per_call,
        "communication": str(asked.distribution.communication),
        "reduce_as": str(asked.distribution.reduce_as),
        # Saving sums variables over the workers.
        "checkpoints": "some" if asked.checkpoint_dir else "none",
        "checkpoint_every": every.steps,
        "checkpoint_every_epochs": every.epochs,
    }


def agree(strategy: tf.distribute.Strategy, task: Task, values: Mapping[str, int | str]) -> None:
    """Checks that all workers have the same values. All must call it.

    Raises:
        DisagreementError: they differ. Raised on all workers.
    """
    if task.trainers == 1:
        return
    rows = _gather(strategy, list(map(_number, values.values())))
    found = {name: [row[at] for row in rows] for at, name in enumerate(values)}
    different = [
        f"{name.replace('_', ' ')} ({_shown(values[name], numbers)})"
        for name, numbers in found.items()
        if len(set(numbers)) > 1
    ]
    if different:
        _confirm_gather(strategy)
        raise DisagreementError(
            f"the workers differ in {', '.join(different)}: "
            "give all of them the same arguments and data, and a --checkpoint-dir they share"
        )


def _number(value: int | str) -> int:
    return value if isinstance(value, int) else zlib.crc32(value.encode())


def _shown(mine: int | str, of_all: list[int]) -> str:
    return ", ".join(map(str, of_all)) if isinstance(mine, int) else f"here {mine}"


def barrier(strategy: tf.distribute.Strategy, task: Task) -> None:
    """Waits for all workers. None may exit while another still communicates with it."""
    if task.trainers > 1:
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
