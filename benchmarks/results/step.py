"""One worker of a two-worker cluster that takes the tutorial's step again and again.

argv: what is done differently, any of the names in VARIANTS; the number of steps. Prints the
milliseconds a step takes: on the clock, and of this process's CPU.
"""

import os
import resource
import sys
import time

VARIANTS = {
    "alone": "no all-reduce: each process for itself",
    "ring": "communication ring",
    "float16": "gradients are reduced as float16",
    "bfloat16": "gradients are reduced as bfloat16",
    "split": "the largest gradient is reduced in four pieces",
    "one-tensor": "all gradients are reduced as one tensor",
    "jit": "loss and gradients compiled by XLA",
    "loop": "25 steps inside one tf.function",
    "fused-optimizer": "the optimizer of tf_keras.optimizers.legacy, one fused kernel a variable",
    "xla-optimizer": "each variable's update compiled by XLA",
    "malloc": "malloc keeps what is freed, in large pages: by GLIBC_TUNABLES, see __main__",
}
chosen, steps = set(sys.argv[1].split("+")) - {"as it is"}, int(sys.argv[2])
unknown = chosen - set(VARIANTS)
if unknown:
    sys.exit(f"no such variant: {', '.join(unknown)}")
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402

communication = tf.distribute.experimental.CommunicationImplementation
strategy = (
    tf.distribute.get_strategy()
    if "alone" in chosen
    else tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=communication.RING if "ring" in chosen else communication.AUTO
        )
    )
)
reduced_as = next((kind for kind in ("float16", "bfloat16") if kind in chosen), "float32")
with strategy.scope():
    model = tf_keras.Sequential(
        [
            tf_keras.layers.InputLayer((28, 28, 1)),
            tf_keras.layers.Conv2D(32, 3, activation="relu"),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(128, activation="relu"),
            tf_keras.layers.Dense(10),
        ]
    )
    if "fused-optimizer" in chosen:
        optimizer = tf_keras.optimizers.legacy.RMSprop(1e-3)
    else:
        optimizer = tf_keras.optimizers.RMSprop(1e-3)
        optimizer.build(model.trainable_variables)
        optimizer.jit_compile = "xla-optimizer" in chosen
    accuracy = tf_keras.metrics.SparseCategoricalAccuracy()
x = np.random.default_rng(0).random((6400, 28, 28, 1), dtype=np.float32)
y = np.random.default_rng(1).integers(0, 10, 6400)


def pipeline(_context=None):
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    return data.batch(64, drop_remainder=True).prefetch(2)


iterator = iter(
    pipeline() if "alone" in chosen else strategy.distribute_datasets_from_function(pipeline)
)


def gradients_of(images, labels):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=128)
    return logits, tape.gradient(loss, model.trainable_variables)


if "jit" in chosen:
    gradients_of = tf.function(gradients_of, jit_compile=True)


def summed(tensors):
    cast = [tf.cast(tensor, reduced_as) for tensor in tensors]
    both = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, cast)
    return [tf.cast(tensor, tf.float32) for tensor in both]


def reduced(gradients):
    if "one-tensor" in chosen:
        (flat,) = summed([tf.concat([tf.reshape(each, [-1]) for each in gradients], 0)])
        parts = tf.split(flat, [int(np.prod(v.shape)) for v in model.trainable_variables])
        return [
            tf.reshape(part, v.shape)
            for part, v in zip(parts, model.trainable_variables, strict=True)
        ]
    if "split" in chosen:
        largest = max(range(len(gradients)), key=lambda i: gradients[i].shape.num_elements())
        pieces = [summed([piece])[0] for piece in tf.split(gradients[largest], 4)]
        others = summed([each for i, each in enumerate(gradients) if i != largest])
        return [*others[:largest], tf.concat(pieces, 0), *others[largest:]]
    return summed(gradients)


def replica_step(batch):
    images, labels = batch
    logits, gradients = gradients_of(images, labels)
    if "alone" in chosen:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    elif "fused-optimizer" in chosen:
        optimizer.apply_gradients(
            zip(reduced(gradients), model.trainable_variables, strict=True),
            experimental_aggregate_gradients=False,
        )
    else:
        optimizer.apply_gradients(
            zip(reduced(gradients), model.trainable_variables, strict=True),
            skip_gradients_aggregation=True,
        )
    accuracy.update_state(labels, logits)


AT_ONCE = 25 if "loop" in chosen else 1


@tf.function
def train(batches):
    for _ in tf.range(AT_ONCE):
        strategy.run(replica_step, args=(next(batches),))


for _ in range(max(1, 10 // AT_ONCE)):
    train(iterator)
before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
for _ in range(steps // AT_ONCE):
    train(iterator)
took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
print(f"wall {took / steps * 1e3:.2f} cpu {cpu / steps * 1e3:.2f}", flush=True)
os._exit(0)
