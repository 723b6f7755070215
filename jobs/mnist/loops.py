"""The ways to go over the distributed dataset; whichever it is, the same is trained.

Each has one iterator for the whole run, kept until the process ends: a new one each epoch stalls
two workers for 5 to 15 seconds, while the old one is deleted.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from preemption import Preemption

Batch = Any
"""A global batch, as each replica's part of it."""


class Loop(Protocol):
    """Trains steps in calls of TensorFlow, between which the run can be stopped or saved."""

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        """Trains so many steps, and says after each call: (its steps, loss of the last one).

        Raises:
            Preempted: in the place of a call.
        """
        ...


class ForLoop:
    """`for batch in dataset`: each batch comes to Python and is passed to the step."""

    def __init__(
        self, dataset: Any, train_step: Callable[[Batch], tf.Tensor], preemption: Preemption
    ) -> None:
        self._batches = iter(dataset)
        self._train_step = tf.function(train_step)
        self._preemption = preemption

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        for batch in islice(self._batches, steps):
            yield 1, self._preemption.run(self._train_step, batch)


class IteratorLoop:
    """A fixed number of steps, each of which takes the next batch itself."""

    def __init__(
        self, dataset: Any, train_step: Callable[[Batch], tf.Tensor], preemption: Preemption
    ) -> None:
        self._iterator = iter(dataset)
        self._train_next = tf.function(lambda iterator: train_step(next(iterator)))
        self._preemption = preemption

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        for _ in range(steps):
            yield 1, self._preemption.run(self._train_next, self._iterator)


class EpochLoop:
    """The epoch's steps inside one tf.function, as many in a call as may be."""

    def __init__(
        self,
        dataset: Any,
        train_step: Callable[[Batch], tf.Tensor],
        preemption: Preemption,
        steps_per_call: int,
    ) -> None:
        self._iterator = iter(dataset)
        self._train_step = train_step
        self._train_steps = tf.function(self._several)
        self._preemption = preemption
        self._steps_per_call = steps_per_call
        # Traced and optimized here rather than within the first epoch's time.
        self._train_steps(self._iterator, tf.constant(0))

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        while steps:
            now = min(steps, self._steps_per_call)
            # A tensor: a Python number would have the function traced anew for each other one.
            yield now, self._preemption.run(self._train_steps, self._iterator, tf.constant(now))
            steps -= now

    def _several(self, iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = self._train_step(next(iterator))
        return loss
