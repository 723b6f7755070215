"""Training by Model.fit in the place of the custom loop; all else of a run stays the same.

Keras has the steps: gradients, loss and metrics are made from what the model is compiled with.
What a run does at the end of an epoch (test, tell, save) is done by a callback, for Keras's own
evaluation and checkpoints would make a new distributed iterator each epoch, or save what the
custom loop cannot resume from. Started again, either goes on where the other stopped.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from asynchronous import AsynchronousTraining
from preemption import Preempted
from synchronous import SynchronousTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from preemption import Preemption
    from state import State


class CountedAccuracy(tf_keras.metrics.SparseCategoricalAccuracy):  # type: ignore[misc]
    """In which each image counts once, whatever its weight in the loss; padding does not."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        once = None if sample_weight is None else tf.sign(sample_weight)
        return super().update_state(y_true, y_pred, sample_weight=once)


class _Steps(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Tells the run of each step; Keras on parameter servers allows no such callback."""

    _supports_tf_logs = True  # else Keras waits for each step, to make its loss a number

    def __init__(self, trained: Callable[[tf.Tensor], None]) -> None:
        super().__init__()
        self._trained = trained

    def on_train_batch_end(self, batch: int, logs: dict[str, tf.Tensor]) -> None:  # noqa: ARG002
        self._trained(logs["loss"])


class _Epochs(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Tells the run of each epoch: its loss and accuracy."""

    def __init__(self, trained: Callable[[float, float], None]) -> None:
        super().__init__()
        self._trained = trained

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:  # noqa: ARG002
        self._trained(float(logs["loss"]), float(logs["accuracy"]))


def compile_for_fit(strategy: tf.distribute.Strategy, state: State) -> None:
    """Has the model trained by the state's optimizer for the objective of the custom loop.

    Keras divides the loss by the places in the global batch, as State does, and adds the
    regularization's share itself.
    """
    with strategy.scope():
        state.model.compile(
            optimizer=state.optimizer,
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[CountedAccuracy(name="accuracy")],
        )


def make_preemptible(model: Any, preemption: Preemption) -> None:
    """Has each step that fit takes run by the preemption's handler."""
    make = model.make_train_function

    def make_train_function(force: bool = False) -> Any:
        train = make(force)
        return lambda iterator: preemption.run(train, iterator)

    model.make_train_function = make_train_function


class SynchronousFit(SynchronousTraining):
    """Model.fit on any strategy but ParameterServerStrategy."""

    def _prepare(self) -> None:
        self._make_pipelines()
        compile_for_fit(self._strategy, self._state)
        make_preemptible(self._state.model, self._preemption)

    def _train(self) -> None:
        # An epoch that was stopped is finished first: all of one fit have the same steps.
        if self._state.position.step:
            self._fit(until=self._state.position.epoch + 1)
        if self._state.position.epoch < self._arguments.epochs:
            self._fit(until=self._arguments.epochs)

    def _fit(self, until: int) -> None:
        self._start_clock()
        if not self._steps_left:  # what is asked for now is less than was trained
            self._end_fitted_epoch(float("nan"), float("nan"))
            return
        self._state.model.fit(
            self._dataset,
            steps_per_epoch=self._steps_left,
            initial_epoch=self._state.position.epoch,
            epochs=until,
            callbacks=[_Steps(self._count_fitted_step), _Epochs(self._end_fitted_epoch)],
            verbose=0,
        )

    def _start_clock(self) -> None:
        self._started = time.monotonic()
        self._first_image = self._state.position.images_seen

    def _count_fitted_step(self, loss: tf.Tensor) -> None:
        """Called after each step; the loss is the mean over the epoch so far."""
        self._say_first(1)
        self._count_steps(1)
        speed = self._speed(self._started, self._first_image)
        self._tell(self._state.position.epoch + 1, loss / self._task.trainers, speed)
        if self._tracing:
            self._tracing = False
            self._start_clock()
        every = self._arguments.checkpoint_every.steps
        if every and self._state.position.step % every == 0 and self._steps_left:
            self._save()

    def _end_fitted_epoch(self, loss: float, accuracy: float) -> None:
        self._end_epoch(loss, accuracy, self._speed(self._started, self._first_image))
        self._start_clock()


class AsynchronousFit(AsynchronousTraining):
    """Model.fit on ParameterServerStrategy: Keras schedules the steps, and shows epochs only."""

    _preempted = False

    def _prepare(self) -> None:
        super()._prepare()
        compile_for_fit(self._strategy, self._state)
        signal.signal(signal.SIGTERM, self._end_at_once)

    def _train(self) -> None:
        self._started = time.monotonic()
        self._state.model.fit(
            tf_keras.utils.experimental.DatasetCreator(self._pipeline),
            steps_per_epoch=self._steps_left,
            initial_epoch=self._state.position.epoch,
            epochs=self._arguments.epochs,
            callbacks=[_Epochs(self._end_fitted_epoch)],
            verbose=0,
        )

    def _end_fitted_epoch(self, loss: float, accuracy: float) -> None:
        steps = self._steps_left
        self._scheduled += steps
        self._check_updates()
        self._count_steps(steps)
        speed = steps * self._global_batch / max(time.monotonic() - self._started, 1e-9)
        self._end_epoch(loss, accuracy, speed)
        self._started = time.monotonic()

    def _end_at_once(self, *_: object) -> None:
        # What was trained of this epoch is lost: no one knows which of its steps have been done.
        self._preempted = True
        raise Preempted

    def _finish(self) -> None:
        if not self._preempted:
            super()._finish()
