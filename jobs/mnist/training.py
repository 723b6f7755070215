"""The custom training loop: steps, epochs, evaluation."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

import inputs
from checkpoints import Checkpoints
from mnist import build_model
from preemption import Preempted, Preemption
from progress import Progress
from workers import agree, meet

if TYPE_CHECKING:
    from collections.abc import Callable

    from arguments import Arguments
    from cluster import Task
    from digits import Digits


class State:
    """What a checkpoint holds: the model, its optimizer, and how far the run is."""

    def __init__(self, strategy: tf.distribute.Strategy, learning_rate: float) -> None:
        with strategy.scope():
            self.model = build_model()
            self.optimizer = tf_keras.optimizers.RMSprop(learning_rate)
            self.optimizer.build(self.model.trainable_variables)
            # Each replica adds to its own copy; reading one sums over all replicas.
            self.accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
            self.loss = tf_keras.metrics.Sum()
            self.test_accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
        self.epoch = tf.Variable(0, dtype=tf.int64)
        """Epochs finished."""
        self.step = tf.Variable(0, dtype=tf.int64)
        """Steps done of the epoch after them."""
        self.total_steps = tf.Variable(0, dtype=tf.int64)
        self.images_seen = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            accuracy=self.accuracy,
            loss=self.loss,
            epoch=self.epoch,
            step=self.step,
            total_steps=self.total_steps,
            images_seen=self.images_seen,
        )


class Training:
    """One run of the job on one strategy."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        digits: Digits,
        arguments: Arguments,
        task: Task,
        say: Callable[[str], None],
    ) -> None:
        self._strategy, self._arguments, self._task, self._say = strategy, arguments, task, say
        self._digits = digits
        self._global_batch = inputs.global_batch_size(strategy, task.trainers, arguments.batch_size)
        self._state = State(strategy, arguments.learning_rate)
        self._checkpoints = (
            Checkpoints(
                self._state.checkpoint, arguments.checkpoint_dir, task, arguments.max_to_keep
            )
            if arguments.checkpoint_dir
            else None
        )
        self._preemption = Preemption(strategy, self._save, unused=os.devnull)
        self._progress = Progress(os.environ)
        self._train_step = tf.function(self._distributed_train_step)
        self._test_step = tf.function(self._distributed_test_step)

    @property
    def headline(self) -> str:
        """What is trained on what, in one line."""
        digits, strategy = self._digits, self._strategy
        return (
            f"{self._arguments.strategy}: {_count(strategy.num_replicas_in_sync, 'replica')} on "
            f"{_count(self._task.trainers, 'worker')}, {self._global_batch} images a step; data: "
            f"{digits.source}, {len(digits.train_images):,} + {len(digits.test_images):,} images"
        )

    def run(self) -> None:
        """Trains, from the newest checkpoint on where there is one.

        Raises:
            Preempted: a worker got SIGTERM; all have saved.
            CheckpointError: the checkpoints cannot be used.
            DisagreementError: the workers were started for different runs.
        """
        try:
            self._resume()
            self._train_epochs()
            meet(self._strategy, self._task)
        except Preempted:
            meet(self._strategy, self._task)
            raise
        finally:
            self._progress.close()
            if self._checkpoints:
                self._checkpoints.tidy()

    @property
    def position(self) -> str:
        """How far the run is, in words."""
        return f"epoch {int(self._state.epoch) + 1}, after step {int(self._state.step)}"

    def _resume(self) -> None:
        state = self._state
        restored = self._checkpoints.restore(self._say) if self._checkpoints else None
        agree(
            self._strategy,
            self._task,
            data=self._digits.fingerprint,
            epochs=self._arguments.epochs,
            steps_per_epoch=self._arguments.steps_per_epoch,
            batch_size=self._arguments.batch_size,
            seed=self._arguments.seed,
            checkpoint_every=self._arguments.checkpoint_every,
            steps_resumed_from=int(state.total_steps),
        )
        if restored:
            self._say(
                f"resumed from {restored} in {self._arguments.checkpoint_dir}: {self.position}"
            )
            state.optimizer.learning_rate.assign(self._arguments.learning_rate)

    def _train_epochs(self) -> None:
        state, arguments = self._state, self._arguments
        epochs = arguments.epochs
        if int(state.epoch) >= epochs:
            self._say(
                f"{arguments.checkpoint_dir} already holds {int(state.epoch)} epochs: nothing "
                "left to train (ask for more --epochs, or another --checkpoint-dir)"
            )
            return
        # Kept until the process ends: deleting a distributed iterator stalls for up to 40 s.
        self._images = inputs.training_iterator(
            self._strategy,
            self._digits,
            global_batch=self._global_batch,
            seed=arguments.seed,
            start=int(state.images_seen),
        )
        self._test_images, self._test_steps = inputs.test_iterator(self._strategy, self._digits)
        while (epoch := int(state.epoch) + 1) <= epochs:
            speed = self._train_epoch(epoch)
            test_accuracy = self._evaluate()
            accuracy = float(state.accuracy.result())
            steps = int(state.step)
            loss = float(state.loss.result()) / max(steps, 1)
            self._say(
                f"epoch {epoch}/{epochs}  step {steps}  accuracy {accuracy:.3f}  loss {loss:.3f}  "
                f"test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}"
            )
            self._progress.send(
                step=int(state.total_steps), epoch=epoch, loss=loss, examples_per_sec=speed
            )
            state.epoch.assign_add(1)
            state.step.assign(0)
            state.accuracy.reset_state()
            state.loss.reset_state()
            self._save()

    def _train_epoch(self, epoch: int) -> float:
        """Trains what is left of an epoch; returns images a second, over all workers.

        The first step of a launch, in which TensorFlow traces the functions, is not counted in
        the speed where others follow it.
        """
        state, every = self._state, self._arguments.checkpoint_every
        done, total = int(state.step), int(state.total_steps)
        started, counted = time.monotonic(), 0
        for step in range(done + 1, self._arguments.steps_per_epoch + 1):
            losses = self._preemption.run(self._train_step, self._images)
            counted += 1
            state.step.assign_add(1)
            state.total_steps.assign_add(1)
            state.images_seen.assign_add(self._global_batch)
            now = time.monotonic()
            if self._progress.due and now > started:
                # This worker's part, scaled up: the sum over all would be a collective more.
                local = self._strategy.experimental_local_results(losses)
                share = self._strategy.num_replicas_in_sync / len(local)
                self._progress.send(
                    step=total + step - done,
                    epoch=epoch,
                    loss=float(tf.add_n(local)) * share,
                    examples_per_sec=counted * self._global_batch / (now - started),
                )
            if counted == 1 and self._tracing:
                self._tracing, counted, started = False, 0, time.monotonic()
            if every and step % every == 0 and step < self._arguments.steps_per_epoch:
                self._save()
        return counted * self._global_batch / max(time.monotonic() - started, 1e-9)

    _tracing = True

    def _save(self) -> None:
        if self._checkpoints:
            self._checkpoints.save()

    def _distributed_train_step(self, images: Any) -> Any:
        """One step on the next global batch; returns each replica's part of its mean loss."""
        return self._strategy.run(self._replica_train_step, args=(next(images),))

    def _replica_train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        state = self._state
        images, labels = batch
        with tf.GradientTape() as tape:
            logits = state.model(images, training=True)
            # Divided by the global batch, so that the sum over the replicas, which is what
            # apply_gradients makes of the gradients, is their mean over all images.
            loss = tf.nn.compute_average_loss(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits),
                global_batch_size=self._global_batch,
            )
        gradients = tape.gradient(loss, state.model.trainable_variables)
        state.optimizer.apply_gradients(
            zip(gradients, state.model.trainable_variables, strict=True)
        )
        state.accuracy.update_state(labels, logits)
        state.loss.update_state(loss)
        return loss

    def _evaluate(self) -> float:
        """Returns the accuracy on the whole test set, the same on all workers."""
        self._state.test_accuracy.reset_state()
        for _ in range(self._test_steps):
            self._test_step(self._test_images)
        return float(self._state.test_accuracy.result())

    def _distributed_test_step(self, images: Any) -> None:
        self._strategy.run(self._replica_test_step, args=(next(images),))

    def _replica_test_step(self, batch: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> None:
        images, labels, weights = batch
        logits = self._state.model(images, training=False)
        self._state.test_accuracy.update_state(labels, logits, sample_weight=weights)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
