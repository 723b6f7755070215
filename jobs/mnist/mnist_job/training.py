"""A run of the job: resumes, counts steps, reports, saves and exports; the loops take the steps."""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from typing import Any

import tensorflow as tf

from mnist_job import agreement, pipelines
from mnist_job.checkpoints import Checkpoints, Counters, explained_io_errors, saved, trained_with
from mnist_job.cluster import Task
from mnist_job.data import DataSet
from mnist_job.errors import UsageError
from mnist_job.model import export
from mnist_job.options import WHOLE_PASS, Options
from mnist_job.preemption import ClusterPreemption, Preempted, Preemption, SigtermWatch
from mnist_job.progress import Progress, Summaries, seconds_since_start


class Training(ABC):
    """One run of the job on one strategy."""

    model: Any
    optimizer: Any
    train_loss: Any
    train_accuracy: Any
    last_loss: Any = math.nan
    """The mean loss over the global batch of the newest step."""
    has_stepped = False

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        data: DataSet,
        options: Options,
        task: Task,
        watch: SigtermWatch | None,
    ) -> None:
        self.strategy, self.data, self.options, self.task = (strategy, data, options, task)
        self.is_cluster = options.strategy == "multi_worker_mirrored" and task.trainers > 1
        """Whether several workers share a step."""
        self.global_batch_size: int = options.batch_size * strategy.num_replicas_in_sync
        self.is_pass = options.steps_per_epoch == WHOLE_PASS
        self.learning_rate = self._learning_rate()
        folder = options.checkpoint_dir
        # Before the first variable: the workers share variables, so their models must be equal.
        self._agree(agreement.run_settings(options, data, len(saved(folder)) if folder else 0))
        self.create_model()
        self.counters = Counters()
        checkpoint = tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            accuracy=self.train_accuracy,
            loss=self.train_loss,
            position=self.counters,
            origin=trained_with(options),
        )
        self.checkpoints = Checkpoints(checkpoint, folder, task, options) if folder else None
        self.preemption: Any = Preemption(watch, self.save)
        if self.is_cluster and watch:
            self.preemption = ClusterPreemption(watch, self.save, strategy)
        self.progress = Progress(os.environ)
        with explained_io_errors("summary", options.summary_dir):
            self.summaries = Summaries(options.summary_dir if task.is_chief else None)

    @abstractmethod
    def create_model(self) -> None: ...

    @abstractmethod
    def prepare(self) -> None: ...  # called once, after the checkpoint has been restored

    @abstractmethod
    def train(self) -> None: ...

    @abstractmethod
    def test(self) -> tuple[float, float]: ...  # loss and accuracy

    @property
    def who(self) -> str:
        """The workers and replicas, in words."""
        replicas, workers = self.strategy.num_replicas_in_sync, self.task.trainers
        return f"{counted(replicas, 'replica')} on {counted(workers, 'worker')}"

    def run(self) -> None:
        """Trains, from the newest checkpoint if there is one. Raises Preempted after SIGTERM."""
        data, options = self.data, self.options
        images = f"{len(data.train_images):,} + {len(data.test_images):,} images"
        batch = f"{self.global_batch_size} images a step"
        say(f"{options.strategy}: {self.who}, {batch}; data: {data.source}, {images}")
        try:
            self._resume()
            self.began = time.monotonic()
            if self.counters.epoch < options.epochs:
                self.start_clock()
                self.prepare()
                self.train()
            else:
                say(
                    f"{options.checkpoint_dir} already holds {self.counters.epoch} epochs: nothing "
                    "left to train (ask for more --epochs, or another --checkpoint-dir)"
                )
            if options.export_dir and self.task.is_chief:
                export(self.model, options.model, options.export_dir)
                say(f"exported to {options.export_dir}")
            self.finish()
        except Preempted:
            self.finish()
            raise
        finally:
            self.progress.close()
            if self.checkpoints:
                self.checkpoints.remove_temp_dir()

    def _learning_rate(self) -> float:
        rates, batch = self.options.learning_rate, self.global_batch_size
        if batch not in rates and 0 not in rates:
            raise UsageError(
                f"--learning-rate has rates for global batches of {', '.join(map(str, rates))} "
                f"images, and none for {batch} (--batch-size times the replicas)"
            )
        return float(rates[batch if batch in rates else 0])

    def _agree(self, values: dict[str, int | str]) -> None:
        if self.is_cluster:
            agreement.agree(self.strategy, values)

    def _resume(self) -> None:
        if self.checkpoints and saved(self.checkpoints.folder):
            restored = self.checkpoints.restore()
            self._agree({"steps_resumed_from": self.counters.total_steps})
            say(f"resumed from {restored} in {self.checkpoints.folder}: {self.counters}")
            self.optimizer.learning_rate.assign(self.learning_rate)

    def finish(self) -> None:
        """Called after training, and after a preempted run has been saved."""
        if self.is_cluster:
            agreement.barrier(self.strategy)

    def save(self) -> None:
        """Saves a checkpoint; all workers at the same step."""
        if self.checkpoints:
            self.checkpoints.save()

    @property
    def all_steps(self) -> int:
        """Steps of a run from its start."""
        per_pass = -(-len(self.data.train_images) // self.global_batch_size)
        return int(self.options.epochs * (self.options.steps_per_epoch or per_pass))

    @property
    def steps_left(self) -> int:
        """Steps left in the epoch."""
        if self.is_pass:
            images = len(self.data.train_images) - self.counters.epoch_images
            return max(-(-images // self.global_batch_size), 0)
        return max(int(self.options.steps_per_epoch) - self.counters.step, 0)

    @property
    def steps_to_next_save(self) -> int:
        """Steps to train until the next checkpoint, or until the end of the epoch."""
        left, every = self.steps_left, int(self.options.checkpoint_every.steps)
        return min(left, every - self.counters.step % every) if every else left

    def batches(self) -> tf.data.Dataset:
        """The batches of indices that the run has not seen yet, without end."""
        count, at = len(self.data.train_images), self.counters
        batch, seed = self.global_batch_size, self.options.seed
        if self.is_pass:
            return pipelines.passes(count, batch, seed, epoch=at.epoch, start=at.epoch_images)
        return pipelines.endless(count, batch, seed, start=at.images_seen)

    def count_steps(self, steps: int) -> None:
        """Counts finished steps, and the images in them."""
        images = steps * self.global_batch_size
        if self.is_pass:
            images = min(images, len(self.data.train_images) - self.counters.epoch_images)
        self.counters.count_steps(steps, images)

    def start_clock(self, more: int = 0) -> None:
        """Starts to measure the images per second; `more` images are trained but not counted."""
        self._clock = (self.counters.images_seen + more, time.monotonic())

    def speed(self, more: int = 0) -> float:
        """Images per second since start_clock, over all workers."""
        images, since = self._clock
        return (self.counters.images_seen + more - images) / max(time.monotonic() - since, 1e-9)

    def report_first(self, steps: int) -> bool:
        """Reports the first step once: until then nobody can see whether the job hangs."""
        is_first, self.has_stepped = not self.has_stepped, True
        if is_first:
            what = "first step" if steps == 1 else f"first {steps} steps"
            say(f"{what} after {seconds_since_start():.1f} s")
        return is_first

    def report_step(self, step: int, speed: float) -> None:
        """Reports the newest step if a report is due: reading its loss waits for the step."""
        if self.progress.due and speed > 0:
            self.progress.send(step, self.counters.epoch + 1, float(self.last_loss), speed)
        if self.summaries.is_due(step):
            with explained_io_errors("summary", self.options.summary_dir):
                self.summaries.write_step(step, float(self.last_loss))

    def end_epoch(self) -> None:
        """Tests, reports and saves an epoch after its last step."""
        counters, epochs, speed = self.counters, self.options.epochs, self.speed()
        epoch = counters.epoch + 1
        loss, accuracy = (float(self.train_loss.result()), float(self.train_accuracy.result()))
        test_loss, test_accuracy = self.test()
        self.began, took = time.monotonic(), time.monotonic() - self.began
        say(
            f"epoch {epoch}/{epochs}  step {counters.step}  accuracy {accuracy:.3f}  "
            f"loss {loss:.3f}  test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  "
            f"seconds {took:.1f}  test_loss {test_loss:.3f}"
        )
        self.progress.send(counters.total_steps, epoch, float(self.last_loss), speed)
        trained = {"epoch_loss": loss, "epoch_accuracy": accuracy, "images_per_second": speed}
        tested = {"epoch_loss": test_loss, "epoch_accuracy": test_accuracy}
        with explained_io_errors("summary", self.options.summary_dir):
            self.summaries.write_epoch(epoch, trained, tested)
        counters.begin_epoch()
        self.train_accuracy.reset_state()
        self.train_loss.reset_state()
        if epoch % self.options.checkpoint_every.epochs == 0 or epoch == epochs:
            self.save()
        self.start_clock()


def say(line: str) -> None:
    print(line, flush=True)


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
