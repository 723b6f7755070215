"""Custom training with several workers, in the API calls of TensorFlow's tutorial for Keras 2.

"Custom training loop with Keras and MultiWorkerMirroredStrategy", with data of its own and few
steps. It needs Keras 2 as tf.keras.
"""

import json
import os

import numpy as np
import tensorflow as tf

PER_WORKER_BATCH_SIZE = 8
EPOCHS = 2
STEPS_PER_EPOCH = 4

tf_config = json.loads(os.environ["TF_CONFIG"])
task = tf_config["task"]
checkpoint_dir = os.path.join("ckpt", "chief" if task["index"] == 0 else "worker")

strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = PER_WORKER_BATCH_SIZE * len(tf_config["cluster"]["worker"])


def dataset_fn(input_context):
    generator = np.random.default_rng(0)
    images = generator.uniform(size=(64, 28, 28)).astype(np.float32)
    labels = (images.mean(axis=(1, 2)) > 0.5).astype(np.int64)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(64).repeat()
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(input_context.get_per_replica_batch_size(global_batch_size))


with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    dist_dataset = strategy.distribute_datasets_from_function(dataset_fn)
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.001)
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_example_loss = tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="none"
            )(y, predictions)
            loss = tf.nn.compute_average_loss(per_example_loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_accuracy.update_state(y, predictions)
        return loss

    losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


epoch = tf.Variable(0, dtype=tf.int64, name="epoch")
checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, directory=checkpoint_dir, max_to_keep=1)
iterator = iter(dist_dataset)
while epoch.numpy() < EPOCHS:
    total_loss = 0.0
    for _ in range(STEPS_PER_EPOCH):
        total_loss += train_step(iterator)
    print("Epoch:", epoch.numpy(), "loss is a number:", np.isfinite(total_loss.numpy()))
    train_accuracy.reset_states()
    manager.save()
    epoch.assign_add(1)
print("tutorial: epochs", epoch.numpy(), "steps", optimizer.iterations.numpy())
