"""The loops over the distributed dataset. All of them train the same.

Each has one iterator for the whole run and keeps it until the process ends. With a new iterator per
epoch, two workers stall for 5 to 15 seconds while the old one is deleted.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from preemption import Preemption

Batch = Any
"""A global batch, as one part for each replica."""


class Loop(Protocol):
    """Trains steps in calls of TensorFlow. The run can stop or save between two calls."""

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        """Trains so many steps; yields (its steps, the loss of the last one) after each call.

        Raises:
            Preempted: instead of a call.
        """
        ...


class ForLoop:
    """`for batch in dataset`: Python receives each batch and passes it to the step."""

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
    """A fixed number of steps. Each takes the next batch from the iterator itself."""

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
    """The steps of an epoch inside one tf.function, up to `steps_per_call` of them in a call."""

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
        # Trace and optimize now, so that the first epoch's time does not include it.
        self._train_steps(self._iterator, tf.constant(0))

    def run(self, steps: int) -> Iterator[tuple[int, tf.Tensor]]:
        while steps:
            now = min(steps, self._steps_per_call)
            # A tensor: the function would be traced again for each new Python number.
            yield now, self._preemption.run(self._train_steps, self._iterator, tf.constant(now))
            steps -= now

    def _several(self, iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = self._train_step(next(iterator))
        return loss
