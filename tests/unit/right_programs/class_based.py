"""A trainer as a class, which creates its strategy first and reads TF_CONFIG."""

import json
import logging
import os
import pathlib

import numpy as np
import tensorflow as tf

try:
    import wandb
except ImportError:
    wandb = None

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, folder, epochs=2):
        self.config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.folder = pathlib.Path(folder)
        self.epochs = epochs
        with self.strategy.scope():
            self.model = self.build()
            self.optimizer = tf.keras.optimizers.SGD(learning_rate=0.1)
            self.loss = tf.keras.metrics.Mean(name="loss")

    def build(self):
        inputs = tf.keras.Input((4,))
        return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))

    def data(self, context):
        x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
        found = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))
        return found.shard(context.num_input_pipelines, context.input_pipeline_id).batch(8)

    @tf.function
    def step(self, iterator):
        def replica(batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.model(x) - y) ** 2)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.model.trainable_variables, strict=True)
            )
            self.loss.update_state(loss)

        self.strategy.run(replica, args=(next(iterator),))

    def train(self):
        iterator = iter(self.strategy.distribute_datasets_from_function(self.data))
        for epoch in range(self.epochs):
            self.step(iterator)
            logger.info("epoch %d: %s", epoch, float(self.loss.result()))
            self.loss.reset_state()
        if self.config.get("task", {}).get("index") == 0:
            self.model.save_weights(self.folder / "last.weights.h5")
        if wandb is not None:
            wandb.finish()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    Trainer(os.environ.get("OUTPUT", ".")).train()
