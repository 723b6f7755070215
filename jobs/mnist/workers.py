"""What the workers of a cluster tell each other, beside gradients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from cluster import Task


class DisagreementError(Exception):
    """The workers were not started for the same run: the text says in what they differ."""


def agree(strategy: tf.distribute.Strategy, task: Task, **values: int) -> None:
    """Checks that all workers have the same values, before they train on different ones.

    Raises:
        DisagreementError: they differ; raised on all of them.
    """
    if task.trainers == 1:
        return
    rows = _gather(strategy, list(values.values()))
    for column, name in enumerate(values):
        found = [row[column] for row in rows]
        if len(set(found)) > 1:
            raise DisagreementError(
                f"the workers differ in {name.replace('_', ' ')} ({', '.join(map(str, found))}): "
                "give all of them the same arguments and data, and a --checkpoint-dir they share"
            )


def meet(strategy: tf.distribute.Strategy, task: Task) -> None:
    """Waits until all workers are here: none may leave while another still needs it.

    Twice: who has the others' numbers may leave before they have its own. Who comes to the end
    of the second meeting knows that all came to the end of the first, which is what counts; the
    second may break off because somebody has left.
    """
    if task.trainers > 1:
        _gather(strategy, [0])
        with contextlib.suppress(tf.errors.OpError):
            _gather(strategy, [0])


def _gather(strategy: tf.distribute.Strategy, mine: list[int]) -> list[list[int]]:
    """Returns every replica's numbers, in the replicas' order."""

    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    rows: list[list[int]] = tf.function(gather)().numpy().tolist()
    return rows
