"""Training with tf.data's service: other processes prepare the data of a MirroredStrategy.

With --serve, this script is the service's dispatcher or one of its workers. Otherwise it trains.
"""

import argparse
import os
import sys
import uuid

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2, as in the other examples

import numpy as np
import tensorflow as tf

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--serve", choices=["dispatcher", "data_worker"], help="default: train")
parser.add_argument("--address", help="HOST:PORT where this server is reached")
parser.add_argument("--dispatcher", help="HOST:PORT of the dispatcher")
parser.add_argument("--data-dir", help="a folder with mnist.npz; default: MNIST is downloaded")
parser.add_argument("--synthetic", action="store_true", help="grey squares in place of MNIST")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps-per-epoch", type=int, default=70)
args = parser.parse_args()
service = tf.data.experimental.service

def serve():
    port = int(args.address.rpartition(":")[2])
    if args.serve == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=port))
    else:
        server = service.WorkerServer(service.WorkerConfig(
            dispatcher_address=args.dispatcher, worker_address=args.address, port=port))
    print(f"{args.serve} serves at {args.address}", flush=True)
    server.join()

def load_data():
    if args.synthetic:
        labels = np.arange(10000) % 10
        images = np.ones((10000, 28, 28), np.uint8) * np.uint8(25 * labels)[:, None, None]
        return images, labels
    path = os.path.expanduser("~/.keras/datasets/mnist.npz")
    path = os.path.join(args.data_dir, "mnist.npz") if args.data_dir else path
    try:
        if not args.data_dir and not os.path.exists(path):  # it gets its name when it is complete
            os.replace(tf.keras.utils.get_file(f"{uuid.uuid4()}.npz", URL), path)
        with np.load(path) as mnist:
            return mnist["x_train"], mnist["y_train"]
    except Exception as error:
        sys.exit(f"MNIST is not available ({error}). Give a folder with mnist.npz: --data-dir DIR; "
                 "or try the script without MNIST: --synthetic")

def prepare(image, label):
    """Shift an image by up to two pixels. The service's workers do this, not the trainer."""
    image = tf.cast(image, tf.float32)[..., None] / 255
    return tf.image.random_crop(tf.pad(image, [[2, 2], [2, 2], [0, 0]]), [28, 28, 1]), label

def train():
    strategy = tf.distribute.MirroredStrategy()
    global_batch_size = 64 * strategy.num_replicas_in_sync
    dataset = tf.data.Dataset.from_tensor_slices(load_data()).shuffle(60000)
    dataset = dataset.repeat().map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(global_batch_size, drop_remainder=True)
    if args.dispatcher:  # everything above runs in the service's workers, in each one by itself
        dataset = dataset.apply(service.distribute(
            service.ShardingPolicy.OFF, f"grpc://{args.dispatcher}"))
    options = tf.data.Options()  # each replica takes its part of each batch
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
    with strategy.scope():
        model = tf.keras.Sequential([
            tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10)])
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.Adam(),
            metrics=["accuracy"])
    model.fit(dataset, epochs=args.epochs, steps_per_epoch=args.steps_per_epoch, verbose=2)

if args.serve:
    serve()
else:
    train()
