"""Training by Model.fit in the place of the custom loop; all else of a run stays the same.

Keras has the steps: gradients, loss and metrics are made from what the model is compiled with.
What a run does at the end of an epoch (test, tell, save) is done by a callback, for Keras's own
evaluation and checkpoints would make a new distributed iterator each epoch, or save what the
custom loop cannot resume from. Started again, either goes on where the other stopped.
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

_LOOK_SECONDS = 0.02
"""Between two looks at whether an epoch's steps are done, on parameter servers."""


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


def run_steps_by(run: Callable[..., Any], model: Any) -> None:
    """Has `run(step, iterator)` called in the place of each `step(iterator)` of Model.fit."""
    make = model.make_train_function

    def make_train_function(force: bool = False) -> Any:
        if model.train_function is not None and not force:
            return model.train_function  # of an earlier fit
        train = make(force)
        return lambda iterator: run(train, iterator)

    model.make_train_function = make_train_function


class _Fit(Training):
    """What fit is given, and when, whichever the strategy."""

    def _train(self) -> None:
        # An epoch that was stopped is finished first: all of one fit have the same steps.
        if self._state.position.step:
            self._finish_epoch()
        if self._state.position.epoch < self._arguments.epochs:
            self._fit(until=self._arguments.epochs)

    def _finish_epoch(self) -> None:
        epoch = self._state.position.epoch + 1
        if self._steps_left:
            self._fit(until=epoch)
            return
        # What is asked for now is less than was trained.
        self._say(f"epoch {epoch}/{self._arguments.epochs} has all its steps already")
        self._close_epoch()

    def _fit(self, until: int) -> None:
        """Trains epochs from where the run is, each of as many steps as the first has left."""
        self._state.model.fit(
            self._fitted_data(),
            steps_per_epoch=self._steps_left,
            initial_epoch=self._state.position.epoch,
            epochs=until,
            callbacks=self._callbacks(),
            verbose=0,
        )

    @abstractmethod
    def _fitted_data(self) -> Any:
        """The run's batches from where it is now, in the form that fit takes."""

    @abstractmethod
    def _callbacks(self) -> list[Any]:
        """Those that tell the run what has been trained; called at the start of each fit."""


class SynchronousFit(_Fit, SynchronousTraining):
    """Model.fit on any strategy but ParameterServerStrategy."""

    def _prepare(self) -> None:
        self._datasets: list[Any] = []
        self._make_test_pipeline()
        compile_for_fit(self._strategy, self._state)
        run_steps_by(self._preemption.run, self._state.model)

    def _fitted_data(self) -> Any:
        self._datasets.append(self._training_dataset())  # kept: deleting one stalls
        return self._datasets[-1]

    def _callbacks(self) -> list[Any]:
        self._start_clock()
        return [_Steps(self._count_fitted_step), _Epochs(self._end_fitted_epoch)]

    def _start_clock(self) -> None:
        self._started = time.monotonic()
        self._first_image = self._state.position.images_seen

    def _count_fitted_step(self, loss: tf.Tensor) -> None:
        """Called after each step; the loss is the mean over the epoch so far."""
        self._say_first(1)
        self._count_steps(1)
        speed = self._speed(self._started, self._first_image)
        self._tell(self._state.position.epoch + 1, loss, speed)
        if self._tracing and self._steps_left:
            self._start_clock()
        self._tracing = False
        every = self._arguments.checkpoint_every.steps
        if every and self._state.position.step % every == 0 and self._steps_left:
            self._save()

    def _mean(self, loss: tf.Tensor) -> float:
        # Keras sums over the workers what each of them has: the mean over all.
        return float(loss) / self._task.trainers

    def _end_fitted_epoch(self, loss: float, accuracy: float) -> None:
        self._end_epoch(loss, accuracy, self._speed(self._started, self._first_image))
        self._start_clock()


class AsynchronousFit(_Fit, AsynchronousTraining):
    """Model.fit on ParameterServerStrategy: Keras schedules the steps, and shows epochs only."""

    _in_epoch = False
    """Whether steps have been scheduled that are not counted in the position."""

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
        """Schedules a step; returns after an epoch's last one when all are done.

        Keras would wait for them where a SIGTERM could not be acted on.

        Raises:
            Preempted: the chief was told to end. What was trained of this epoch is lost: no one
                knows which of its steps have been done.
        """
        if self._told_to_end.is_set():
            raise Preempted
        self._in_epoch = True
        scheduled = step(iterator)
        self._to_schedule -= 1
        while not (self._to_schedule or self._coordinator.done()):
            if self._told_to_end.wait(_LOOK_SECONDS):
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
