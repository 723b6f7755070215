"""The training loop: its epochs, the ways to iterate, and what happens between two steps."""

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import tensorflow as tf

from mnist_job import STARTED, JobError, keras_fit, pipelines, progress, strategies, workarounds
from mnist_job.checkpoints import Checkpoints, Counters, saved
from mnist_job.cluster import Task
from mnist_job.data import DataSet
from mnist_job.options import PASSES, Options
from mnist_job.preemption import Preempted, SigtermWatch, agreed_handler
from mnist_job.training import Training

say = partial(print, flush=True)
STEPS_PER_CALL = 100
"""Of --loop epoch: a call must end within the 10 s that launchers usually give after SIGTERM."""
_PLUGIN = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
_SCALAR = tf.compat.v1.SummaryMetadata(plugin_data=_PLUGIN)
"""As tf.summary.scalar writes, which needs a package that TensorFlow does not install."""


class Loop(Training):
    """One run of the job, on any strategy but ParameterServerStrategy."""

    last_loss: Any = math.nan  # the mean loss over the global batch of the newest step
    handler: Any = None
    next_report = speed = 0.0  # by time.monotonic; images per second of all workers
    next_summary = 0

    def __init__(self, strategy: Any, data: DataSet, options: Options, task: Task) -> None:
        self.task, folder, replicas = task, options.checkpoint_dir, strategy.num_replicas_in_sync
        (size, is_global), rates = options.batch_size, options.learning_rate
        batch = (-(-size // replicas) if is_global else size) * replicas
        size = size if is_global else batch
        if not (rate := rates.get(size, rates.get(0))):
            known = f"global batches of {', '.join(map(str, rates))} images, and none for {size}"
            raise JobError(f"--learning-rate has rates for {known} (see --batch-size)", code=2)
        self.is_cluster = options.strategy == "multi_worker_mirrored" and task.trainers > 1
        if self.is_cluster:  # the workers share steps, variables and saves
            same = {key: value for key, value in vars(options).items() if "_dir" not in key}
            found = len(saved(folder)) if folder else "none"
            strategies.agree(strategy, {**same, "data": data.fingerprint, "checkpoints": found})
        super().__init__(strategy, data, options, batch, rate)
        self.rate = rate
        self.is_pass = options.steps_per_epoch in PASSES.values()
        steps = -(-len(data.train_images) // batch) if self.is_pass else options.steps_per_epoch
        self.totals = {"EPOCHS": options.epochs, "STEPS": options.epochs * steps}
        workarounds.compile_updates(self.optimizer, options.strategy, options.epochs * steps)
        self.counters, self.sigterm = Counters(options), threading.Event()
        state = {"model": self.model, "optimizer": self.optimizer, "counters": self.counters}
        state |= {"loss": self.train_loss, "accuracy": self.train_accuracy}
        self.checkpoints = folder and Checkpoints(state, folder, task, options)
        logs = options.summary_dir if task.is_chief else None
        parts = ("train", "test") if logs else ()  # TensorBoard draws both into one chart
        self.writers = {part: tf.summary.create_file_writer(f"{logs}/{part}") for part in parts}

    def run(self, watch: SigtermWatch) -> None:
        """Trains, from the newest checkpoint if there is one. Raises Preempted after SIGTERM."""
        if self.is_cluster:
            self.handler = agreed_handler(watch, self.save, self.strategy)
        else:
            watch.act = self.sigterm.set
        images = f"{len(self.data.train_images):,} + {len(self.data.test_images):,} images"
        batch = f"{self.global_batch_size} images a step"
        say(f"{self.options.strategy}: {self.who()}, {batch}; data: {self.data.source}, {images}")
        try:
            self.restore()
            self.prepare()
            self.train()
        except Preempted:
            self.finish()
            raise
        self.finish()

    def who(self) -> str:
        replicas, workers = self.strategy.num_replicas_in_sync, self.task.trainers
        ends = ["s" * (number > 1) for number in (replicas, workers)]
        return f"{replicas} replica{ends[0]} on {workers} worker{ends[1]}"

    def restore(self) -> None:
        """Continues from the newest checkpoint, which must be the same on all workers."""
        if self.checkpoints and (restored := self.checkpoints.restore()):
            if self.is_cluster:
                strategies.agree(self.strategy, {"steps resumed from": self.counters.total_steps})
            self.optimizer.learning_rate.assign(self.rate)
            say(f"resumed from {restored} in {self.checkpoints.folder}: {self.counters}")
            if (held := self.counters.epoch) >= self.options.epochs:
                say(
                    f"it already holds {held} epochs: nothing left to train (ask for more --epochs)"
                )

    def make_dataset(self) -> Any:
        """The distributed dataset of the batches that the run has not seen yet, without end."""
        data, options, batch = self.data, self.options, self.global_batch_size
        arrays = (data.train_images, data.train_labels, data.sample_weights)
        count, seen = len(arrays[0]), self.counters.images_seen
        if self.is_pass:
            seen = (self.counters.epoch + 1) * count - self.images_left
        by_global = options.steps_per_epoch == PASSES["all-global"]
        batches = pipelines.batches(count, batch, options.seed, seen, self.is_pass, by_global)
        return pipelines.distributed(self.strategy, batches, arrays, batch, options.input)

    def prepare(self) -> None:
        """Builds the training pipeline and the functions that take steps."""
        self.dataset = self.make_dataset()
        step = pipelines.as_written(self.distributed_train_step)

        def several(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(steps):
                loss = step(next(iterator))
            return loss

        self.train_batch = tf.function(step, autograph=False)
        self.train_next = tf.function(lambda iterator: step(next(iterator)), autograph=False)
        self.train_several = tf.function(several)

    def train(self) -> None:
        """Trains the remaining epochs."""
        self.began = time.monotonic()
        self.start_clock()
        if self.options.loop == "fit":
            keras_fit.fit(self)
            return
        # One for the whole run: with a new one per epoch, two workers stall for 5 to 15 seconds
        # while the old one is deleted.
        self.iterator = iter(self.dataset)
        while self.counters.epoch < self.options.epochs:
            self.train_epoch()
            self.end_epoch()

    def train_epoch(self) -> None:
        """Trains the rest of an epoch, in calls of TensorFlow."""
        if self.options.loop == "for":
            for batch in islice(self.iterator, self.steps_left):
                self.take_steps(self.train_batch, batch)
        elif self.options.loop == "iterator":
            while self.steps_left:
                self.take_steps(self.train_next, self.iterator)
        else:
            while steps := min(self.steps_to_next_save, STEPS_PER_CALL):
                # A tensor: the function would be traced again for each new Python number.
                self.take_steps(self.train_several, self.iterator, tf.constant(steps), steps=steps)

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        """Calls a function that trains so many steps; then counts, reports and saves."""
        until_save = self.steps_to_next_save
        if self.sigterm.is_set():
            self.save()
            raise Preempted
        result = self.handler.run(function, *args) if self.handler else function(*args)
        self.last_loss = result["loss"] if self.options.loop == "fit" else result
        self.count_steps(steps)
        if steps == until_save and self.steps_left:
            self.save()
        return result

    def end_epoch(self) -> None:
        """Tests, reports and saves an epoch after its last step."""
        counters, epochs, speed = self.counters, self.options.epochs, self.speed
        epoch, (test_loss, test_accuracy) = counters.epoch + 1, self.test()
        loss, accuracy = float(self.train_loss.result()), float(self.train_accuracy.result())
        self.began, took = time.monotonic(), time.monotonic() - self.began
        say(
            f"epoch {epoch}/{epochs}  step {counters.step}  accuracy {accuracy:.3f}  "
            f"loss {loss:.3f}  test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  "
            f"seconds {took:.1f}  test_loss {test_loss:.3f}"
        )
        self.report(loss, ACCURACY=accuracy)
        trained = {"epoch_loss": loss, "epoch_accuracy": accuracy, "images_per_second": speed}
        self.write_summary("train", epoch, trained)
        self.write_summary(
            "test", epoch, {"epoch_loss": test_loss, "epoch_accuracy": test_accuracy}
        )
        counters.epoch, counters.step, counters.epoch_images = epoch, 0, 0
        self.train_accuracy.reset_state()
        self.train_loss.reset_state()
        if epoch % self.options.checkpoint_every[1] == 0 or epoch == epochs:
            self.save()
        self.start_clock()

    def save(self) -> None:
        """Saves a checkpoint; all workers at the same step."""
        if self.checkpoints:
            progress.report(SAVING=1)
            self.checkpoints.save()
            progress.report(SAVING=0)

    def finish(self) -> None:
        """Called after training, and after a preempted run has been saved."""
        if self.checkpoints:
            self.checkpoints.remove_temp_dir()
        if self.is_cluster:
            strategies.barrier(self.strategy)

    @property
    def images_left(self) -> int:
        """Images left in a pass."""
        return max(len(self.data.train_images) - self.counters.epoch_images, 0)

    @property
    def steps_left(self) -> int:
        """Steps left in the epoch."""
        if self.is_pass:
            return -(-self.images_left // self.global_batch_size)
        return max(int(self.options.steps_per_epoch) - self.counters.step, 0)

    @property
    def steps_to_next_save(self) -> int:
        """Steps to train until the next checkpoint, or until the end of the epoch."""
        left, (every, _) = self.steps_left, self.options.checkpoint_every
        return min(left, every - self.counters.step % every) if every else left

    def start_clock(self) -> None:
        self._clock = (self.counters.images_seen, time.monotonic())

    def count_steps(self, steps: int) -> None:
        """Counts finished steps and the images in them, and reports what is due."""
        images = steps * self.global_batch_size
        self.counters.count_steps(steps, min(images, self.images_left) if self.is_pass else images)
        step, now, (before, since) = self.counters.total_steps, time.monotonic(), self._clock
        self.speed = (self.counters.images_seen - before) / max(now - since, 1e-9)
        if not self.next_report:  # until now, nobody could see whether the job hangs
            what = "first step" if steps == 1 else f"first {steps} steps"
            say(f"{what} after {now - STARTED:.1f} s")
            if self.steps_left:  # the first call, in which functions are traced, does not count
                self.start_clock()
        if now >= self.next_report:  # not each: reading a loss waits for its step
            self.next_report = now + progress.INTERVAL
            self.report(float(self.last_loss))
        if self.writers and step >= self.next_summary:
            self.next_summary = step + 10
            self.write_summary("train", step, {"batch_loss": float(self.last_loss)})

    def report(self, loss: float, **more: float) -> None:
        counts = {"STEP": self.counters.total_steps, "EPOCH": self.counters.epoch + 1}
        progress.report(**counts, **self.totals, LOSS=loss, **more, EXAMPLES_PER_SEC=self.speed)

    def write_summary(self, part: str, step: int, numbers: dict[str, float]) -> None:
        if part in self.writers:
            with self.writers[part].as_default(step):
                for name, number in numbers.items():
                    tf.summary.write(name, number, metadata=_SCALAR)
            self.writers[part].flush()
