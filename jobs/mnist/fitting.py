"""Training by Model.fit instead of the custom loop; the rest of a run stays the same.

Keras runs the steps: it computes gradients, loss and metrics from the settings of `compile`. At the
end of each epoch a callback tests, reports and saves. Keras's own evaluation would make a new
distributed iterator each epoch, and the custom loop could not resume from Keras's own checkpoints.
Each of the two can resume where the other stopped.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from asynchronous import AsynchronousTraining
from preemption import Preempted
from synchronous import SynchronousTraining
from training import Training

if TYPE_CHECKING:
    from collections.abc import Callable

    from state import State

_POLL_SECONDS = 0.02
"""Seconds between two checks whether an epoch's steps are done, on parameter servers."""


class CountedAccuracy(tf_keras.metrics.SparseCategoricalAccuracy):  # type: ignore[misc]
    """Accuracy that counts each image once, whatever its weight in the loss, and no padding."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        once = None if sample_weight is None else tf.sign(sample_weight)
        return super().update_state(y_true, y_pred, sample_weight=once)


class _Steps(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Reports each step to the run. Keras does not allow this callback on parameter servers."""

    _supports_tf_logs = True  # otherwise Keras waits for each step to convert its loss

    def __init__(self, trained: Callable[[tf.Tensor], None]) -> None:
        super().__init__()
        self._trained = trained

    def on_train_batch_end(self, batch: int, logs: dict[str, tf.Tensor]) -> None:  # noqa: ARG002
        self._trained(logs["loss"])


class _Epochs(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the loss and accuracy of each epoch to the run."""

    def __init__(self, trained: Callable[[float, float], None]) -> None:
        super().__init__()
        self._trained = trained

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:  # noqa: ARG002
        self._trained(float(logs["loss"]), float(logs["accuracy"]))


def compile_for_fit(strategy: tf.distribute.Strategy, state: State) -> None:
    """Compiles the model for the optimizer and the objective of the custom loop.

    Keras divides the loss by the size of the global batch, as State does, and adds each replica's
    share of the regularization.
    """
    with strategy.scope():
        state.model.compile(
            optimizer=state.optimizer,
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[CountedAccuracy(name="accuracy")],
        )


def run_steps_by(run: Callable[..., Any], model: Any) -> None:
    """Makes Model.fit call `run(step, iterator)` instead of `step(iterator)`."""
    make = model.make_train_function

    def make_train_function(force: bool = False) -> Any:
        if model.train_function is not None and not force:
            return model.train_function  # from an earlier fit
        train = make(force)
        return lambda iterator: run(train, iterator)

    model.make_train_function = make_train_function


class _Fit(Training):
    """Calls Model.fit; common to all strategies."""

    def _train(self) -> None:
        # Finish an interrupted epoch first: all epochs of one fit have the same number of steps.
        if self._state.counters.step:
            self._finish_epoch()
        if self._state.counters.epoch < self._arguments.epochs:
            self._fit(until=self._arguments.epochs)

    def _finish_epoch(self) -> None:
        epoch = self._state.counters.epoch + 1
        if self._steps_left:
            self._fit(until=epoch)
            return
        # This launch asks for fewer steps than are trained already.
        self._say(f"epoch {epoch}/{self._arguments.epochs} has all its steps already")
        self._close_epoch()

    def _fit(self, until: int) -> None:
        """Trains up to epoch `until`. Each epoch has the steps that are left in the current one."""
        self._state.model.fit(
            self._fitted_data(),
            steps_per_epoch=self._steps_left,
            initial_epoch=self._state.counters.epoch,
            epochs=until,
            callbacks=self._callbacks(),
            verbose=0,
        )

    @abstractmethod
    def _fitted_data(self) -> Any:
        """The batches that the run has not seen yet, in the form that fit takes."""

    @abstractmethod
    def _callbacks(self) -> list[Any]:
        """The callbacks that report to the run. Called at the start of each fit."""


class SynchronousFit(_Fit, SynchronousTraining):
    """Model.fit on any strategy but ParameterServerStrategy."""

    def _prepare(self) -> None:
        self._datasets: list[Any] = []
        self._make_test_pipeline()
        compile_for_fit(self._strategy, self._state)
        run_steps_by(self._preemption.run, self._state.model)

    def _fitted_data(self) -> Any:
        self._datasets.append(self._training_dataset())  # kept, because deleting one stalls
        return self._datasets[-1]

    def _callbacks(self) -> list[Any]:
        self._start_clock()
        return [_Steps(self._count_fitted_step), _Epochs(self._end_fitted_epoch)]

    def _start_clock(self) -> None:
        self._started = time.monotonic()
        self._first_image = self._state.counters.images_seen

    def _count_fitted_step(self, loss: tf.Tensor) -> None:
        """Called after each step. The loss is the mean over the epoch so far."""
        self._report_first_step(1)
        self._count_steps(1)
        speed = self._speed(self._started, self._first_image)
        self._report_progress(self._state.counters.epoch + 1, loss, speed)
        if self._tracing and self._steps_left:
            self._start_clock()
        self._tracing = False
        every = self._arguments.checkpoint_every.steps
        if every and self._state.counters.step % every == 0 and self._steps_left:
            self._save()

    def _mean(self, loss: tf.Tensor) -> float:
        # Keras sums the means of all workers.
        return float(loss) / self._task.trainers

    def _end_fitted_epoch(self, loss: float, accuracy: float) -> None:
        self._end_epoch(loss, accuracy, self._speed(self._started, self._first_image))
        self._start_clock()


class AsynchronousFit(_Fit, AsynchronousTraining):
    """Model.fit on ParameterServerStrategy: Keras schedules the steps and reports only epochs."""

    _in_epoch = False
    """Whether steps have been scheduled that are not counted yet."""

    def _prepare(self) -> None:
        super()._prepare()
        compile_for_fit(self._strategy, self._state)
        run_steps_by(self._schedule, self._state.model)

    def _fitted_data(self) -> Any:
        return tf_keras.utils.experimental.DatasetCreator(self._pipeline)

    def _callbacks(self) -> list[Any]:
        self._start_epoch()
        return [_Epochs(self._end_fitted_epoch)]

    def _start_epoch(self) -> None:
        self._in_epoch = False
        self._to_schedule = self._steps_left
        self._started = time.monotonic()

    def _schedule(self, step: Callable[[Any], Any], iterator: Any) -> Any:
        """Schedules a step. After the last step of an epoch, waits until all are done.

        Keras would also wait, but then SIGTERM could not interrupt it.

        Raises:
            Preempted: the chief received SIGTERM. The steps of this epoch are lost, because nobody
                knows which of them are done.
        """
        if self._shutdown_requested.is_set():
            raise Preempted
        self._in_epoch = True
        scheduled = step(iterator)
        self._to_schedule -= 1
        while not (self._to_schedule or self._coordinator.done()):
            if self._shutdown_requested.wait(_POLL_SECONDS):
                raise Preempted
        return scheduled

    def _end_fitted_epoch(self, loss: float, accuracy: float) -> None:
        steps = self._steps_left
        self._scheduled += steps
        self._check_updates()
        self._count_steps(steps)
        speed = steps * self._global_batch / max(time.monotonic() - self._started, 1e-9)
        self._end_epoch(loss, accuracy, speed)
        self._start_epoch()

    def _finish(self) -> None:
        if not self._in_epoch:
            super()._finish()
