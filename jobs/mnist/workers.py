"""What the workers of a cluster tell each other, beside gradients."""

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
    """The workers were not started for the same run: the text says in what they differ."""


def terms(arguments: Arguments, digits: Digits) -> dict[str, int | str]:
    """What the workers that train together must have in common, by its names."""
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
    """Checks that all workers have the same values, before they train on different ones.

    Raises:
        DisagreementError: they differ; raised on all of them.
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
        _linger(strategy)
        raise DisagreementError(
            f"the workers differ in {', '.join(different)}: "
            "give all of them the same arguments and data, and a --checkpoint-dir they share"
        )


def _number(value: int | str) -> int:
    return value if isinstance(value, int) else zlib.crc32(value.encode())


def _shown(mine: int | str, of_all: list[int]) -> str:
    return ", ".join(map(str, of_all)) if isinstance(mine, int) else f"here {mine}"


def meet(strategy: tf.distribute.Strategy, task: Task) -> None:
    """Waits until all workers are here: none may leave while another still needs it."""
    if task.trainers > 1:
        _gather(strategy, [0])
        _linger(strategy)


def _linger(strategy: tf.distribute.Strategy) -> None:
    """Waits until all workers have what was gathered last; to be called before this one leaves.

    Who has the others' numbers could be gone before they have its own. So all gather once more: who
    comes to the end of that knows that all came to the end of the one before, which is what counts;
    it may itself break off because somebody has left.
    """
    with contextlib.suppress(tf.errors.OpError):
        _gather(strategy, [0])


def _gather(strategy: tf.distribute.Strategy, mine: list[int]) -> list[list[int]]:
    """Returns every replica's numbers, in the replicas' order."""

    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    rows: list[list[int]] = tf.function(gather)().numpy().tolist()
    return rows
