"""The training loop: its epochs, the ways to iterate, and what happens between two steps."""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

import tensorflow as tf
import tf_keras

from mnist_job import STARTED, JobError, launcher, strategies, workarounds
from mnist_job.checkpoints import Checkpoints, Counters, saved
from mnist_job.data import DataSet
from mnist_job.options import PASSES, Options
from mnist_job.training import Training, as_written, batches, distributed

STEPS_PER_CALL = 100  # of --loop epoch: must end within the 10 s that launchers give after SIGTERM
_PLUGIN = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
_SCALAR = tf.compat.v1.SummaryMetadata(plugin_data=_PLUGIN)
"""As tf.summary.scalar writes, which needs a package that TensorFlow does not install."""


class Loop(Training):
    """One run of the job, on any strategy but ParameterServerStrategy."""

    last_loss: Any = math.nan  # the mean loss over the global batch of the newest step
    handler: Any = None
    next_report = speed = 0.0  # by time.monotonic; images per second of all workers

    def __init__(self, strategy: Any, data: DataSet, options: Options) -> None:
        task, folder, replicas = options.task, options.checkpoint_dir, strategy.num_replicas_in_sync
        (size, is_global), rates = options.batch_size, options.learning_rate
        self.global_batch_size = (-(-size // replicas) if is_global else size) * replicas
        size = size if is_global else self.global_batch_size
        if size not in rates and 0 not in rates:
            known = f"global batches of {', '.join(map(str, rates))} images, and none for {size}"
            raise JobError(f"--learning-rate has rates for {known} (see --batch-size)", code=2)
        self.learning_rate = rates.get(size) or rates[0]
        self.is_cluster = options.strategy == "multi_worker_mirrored" and task.trainers > 1
        if self.is_cluster:  # the workers share steps, variables and saves
            same = {key: value for key, value in vars(options).items() if "_dir" not in key}
            same |= {"task": None, "data": data.fingerprint}
            found = len(saved(folder)) if folder else "none"
            strategies.agree(strategy, {**same, "checkpoints": found})
        super().__init__(strategy, data, options)
        self.is_pass, steps = options.steps_per_epoch in PASSES.values(), options.steps_per_epoch
        steps = -(-len(data.train_images) // self.global_batch_size) if self.is_pass else steps
        self.totals = {"EPOCHS": options.epochs, "STEPS": options.epochs * steps}
        workarounds.compile_updates(self.optimizer, options.strategy, options.epochs * steps)
        self.counters, self.sigterm = Counters(options), threading.Event()
        state = {"model": self.model, "optimizer": self.optimizer, "counters": self.counters}
        state |= {"loss": self.train_loss, "accuracy": self.train_accuracy}
        self.checkpoints = Checkpoints(state, options) if folder else None
        logs = options.summary_dir if task.is_chief else None
        parts = ("train", "test") if logs else ()  # TensorBoard draws both into one chart
        self.writers = {part: tf.summary.create_file_writer(f"{logs}/{part}") for part in parts}

    def run(self, watch: launcher.SigtermWatch) -> None:
        if self.is_cluster:
            self.handler = strategies.sigterm_handler(watch, self.save, self.strategy)
        else:
            watch.act = self.sigterm.set
        tasks = [f", {role} {len(at)}" for role, at in self.options.task.cluster.items()]
        who = f"replicas {self.strategy.num_replicas_in_sync}{''.join(tasks)}"
        images = f"{len(self.data.train_images):,} + {len(self.data.test_images):,} images"
        data = f"{self.global_batch_size} images a step; data: {self.data.source}, {images}"
        print(f"{self.options.strategy}: {who}, {data}")
        with suppress(launcher.Preempted):
            self.restore()
            self.prepare()
            self.train()
        self.finish()

    def restore(self) -> None:
        if self.checkpoints and (restored := self.checkpoints.restore()):
            if self.is_cluster:
                strategies.agree(self.strategy, {"steps resumed from": self.counters.total_steps})
            self.optimizer.learning_rate.assign(self.learning_rate)
            is_over = self.counters.epoch >= self.options.epochs
            where = f"{restored} in {self.checkpoints.folder}: {self.counters}"
            print(f"resumed from {where}{'; nothing left to train (see --epochs)' * is_over}")

    def make_dataset(self) -> Any:
        """The distributed dataset of the batches that the run has not seen yet, without end."""
        data, options, counters = self.data, self.options, self.counters
        arrays = (data.train_images, data.train_labels, data.sample_weights)
        count, size = len(data.train_images), self.global_batch_size
        in_passes = counters.epoch * count + min(counters.epoch_images, count)
        start = in_passes if self.is_pass else counters.images_seen
        by_global = options.steps_per_epoch == PASSES["all-global"]
        chosen = batches(count, size, options.seed, start, self.is_pass, by_global)
        return distributed(self.strategy, chosen, arrays, size, options.input)

    def prepare(self) -> None:
        self.dataset = self.make_dataset()
        step = as_written(self.distributed_train_step)

        def several(iterator: Any, steps: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(steps):
                loss = step(next(iterator))
            return loss

        self.train_batch = tf.function(step, autograph=False)
        self.train_next = tf.function(lambda iterator: step(next(iterator)), autograph=False)
        self.train_several = tf.function(several)

    def train(self) -> None:
        self.began = time.monotonic()
        self.clock = (self.counters.images_seen, self.began)
        if self.options.loop == "fit":
            self.fit()
            return
        # One for the whole run: while an old one is deleted, two workers stall for 5 to 15 seconds.
        self.iterator = iter(self.dataset)
        while self.counters.epoch < self.options.epochs:
            self.train_epoch()
            self.end_epoch()

    def train_epoch(self) -> None:
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

    def fit(self) -> None:
        # A callback ends each epoch as the other loops do: Keras's own evaluation would make a new
        # distributed iterator, and other loops could not resume from Keras's own checkpoints.
        ends = tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: self.end_epoch())
        with self.strategy.scope():
            self.model.compile(self.optimizer)

        def step(iterator: Any) -> dict[str, Any]:
            return {"loss": self.take_steps(self.train_next, iterator)}

        self.model.make_train_function = lambda: step  # Keras's hook for one's own step
        counters, epochs = self.counters, self.options.epochs
        datasets = [self.dataset]  # kept, because deleting one stalls
        while counters.epoch < epochs:
            if not self.steps_left:  # this launch asks for fewer steps than are trained already
                self.end_epoch()
                continue
            # All epochs of a fit have as many steps: an interrupted epoch is finished first.
            until = counters.epoch + 1 if counters.step else epochs
            steps = {"steps_per_epoch": self.steps_left, "initial_epoch": counters.epoch}
            self.model.fit(datasets[-1], **steps, epochs=until, callbacks=[ends], verbose=0)
            if counters.epoch < epochs:
                datasets.append(self.make_dataset())

    def take_steps(self, function: Callable[..., Any], *args: Any, steps: int = 1) -> Any:
        if self.sigterm.is_set():
            self.save()
            raise launcher.Preempted
        self.last_loss = self.handler.run(function, *args) if self.handler else function(*args)
        self.count_steps(steps)
        return self.last_loss

    def end_epoch(self) -> None:
        counters, epochs, speed = self.counters, self.options.epochs, self.speed
        epoch, (test_loss, test_accuracy) = counters.epoch + 1, self.test()
        loss, accuracy = float(self.train_loss.result()), float(self.train_accuracy.result())
        self.began, took = time.monotonic(), time.monotonic() - self.began
        print(
            f"epoch {epoch}/{epochs}  step {counters.step}  accuracy {accuracy:.3f}  "
            f"loss {loss:.3f}  test_accuracy {test_accuracy:.3f}  images/s {speed:.0f}  "
            f"seconds {took:.1f}  test_loss {test_loss:.3f}"
        )
        self.report(loss, ACCURACY=accuracy)
        trained = {"epoch_loss": loss, "epoch_accuracy": accuracy, "images_per_second": speed}
        self.summarize("train", epoch, **trained)
        self.summarize("test", epoch, epoch_loss=test_loss, epoch_accuracy=test_accuracy)
        counters.epoch, counters.step, counters.epoch_images = epoch, 0, 0
        self.train_accuracy.reset_state()
        self.train_loss.reset_state()
        if epoch % self.options.checkpoint_every[1] == 0 or epoch == epochs:
            self.save()
        self.clock = (counters.images_seen, time.monotonic())

    def save(self) -> None:
        if self.checkpoints:
            launcher.report(SAVING=1)
            self.checkpoints.save()
            launcher.report(SAVING=0)

    def finish(self) -> None:
        if self.checkpoints:
            self.checkpoints.remove_temp_dir()
        if self.is_cluster:
            strategies.barrier(self.strategy)

    @property
    def steps_left(self) -> int:
        if self.is_pass:
            images = len(self.data.train_images) - self.counters.epoch_images
            return max(-(-images // self.global_batch_size), 0)
        return max(int(self.options.steps_per_epoch) - self.counters.step, 0)

    @property
    def steps_to_next_save(self) -> int:
        left, (every, _) = self.steps_left, self.options.checkpoint_every
        return min(left, every - self.counters.step % every) if every else left

    def count_steps(self, steps: int) -> None:
        """Counts finished steps and the images in them; reports, and saves where it is due."""
        is_due, counters = steps == self.steps_to_next_save, self.counters
        images = steps * self.global_batch_size
        if self.is_pass:  # the last batch can be smaller
            images = min(images, len(self.data.train_images) - counters.epoch_images)
        counters.step += steps
        counters.total_steps += steps
        counters.epoch_images += images
        counters.images_seen += images
        now, (before, since) = time.monotonic(), self.clock
        self.speed = (counters.images_seen - before) / max(now - since, 1e-9)
        if not self.next_report:  # until now, nobody could see whether the job hangs
            what = "first step" if steps == 1 else f"first {steps} steps"
            print(f"{what} after {now - STARTED:.1f} s")
            if self.steps_left:  # the first call, in which functions are traced, does not count
                self.clock = (counters.images_seen, now)
        if now >= self.next_report:  # not each: reading a loss waits for its step
            self.next_report = now + launcher.REPORT_INTERVAL
            self.report(loss := float(self.last_loss))
            self.summarize("train", counters.total_steps, batch_loss=loss)
        if is_due and self.steps_left:
            self.save()

    def report(self, loss: float, **more: float) -> None:
        counts = {"STEP": self.counters.total_steps, "EPOCH": self.counters.epoch + 1}
        launcher.report(**counts, **self.totals, LOSS=loss, **more, EXAMPLES_PER_SEC=self.speed)

    def summarize(self, part: str, step: int, **numbers: float) -> None:
        if part in self.writers:
            with self.writers[part].as_default(step):
                for name, number in numbers.items():
                    tf.summary.write(name, number, metadata=_SCALAR)
            self.writers[part].flush()
