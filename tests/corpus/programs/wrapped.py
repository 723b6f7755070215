"""Errors that TensorFlow and Keras wrap in others: WRAPPED says which; all tasks meet it."""

import os

import numpy as np
import tensorflow as tf

WRAPPED = os.environ["WRAPPED"]
layers = tf.keras.layers
strategy = (
    tf.distribute.MultiWorkerMirroredStrategy()
    if "TF_CONFIG" in os.environ
    else tf.distribute.get_strategy()
)


class Head(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.dense = layers.Dense(units)

    def call(self, features):
        if WRAPPED == "raised_in_layer":
            check(features)
        return self.dense(features)


def check(features):
    if features.shape[-1] != 7:
        raise ValueError(f"7 features are needed, not {features.shape[-1]}")


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(16, activation="relu")
        self.head = Head(10)

    def call(self, images):
        features = self.first(images)
        if WRAPPED == "key_in_call":
            features = features * {"scale": 2.0}["scales"]
        if WRAPPED == "two_models":
            features = tf.keras.Sequential([layers.Input((5,)), layers.Dense(2)])(features)
        return self.head(features)


def build():
    if WRAPPED == "sequential":
        return tf.keras.Sequential([layers.Input((12,)), layers.Dense(10)])
    if WRAPPED == "functional":
        one, two = layers.Input((4,)), layers.Input((5, 3))
        return tf.keras.Model([one, two], layers.Concatenate(axis=1)([one, two]))
    return Net()


def own_loss(labels, predictions):
    return tf.reduce_mean(tf.square(tf.one_hot(labels, 9) - predictions))


def in_python(value):
    if value.numpy() > 5:
        raise LookupError(f"no picture with the number {value.numpy()}")
    return value


def decode(image, label):
    if WRAPPED == "map_traced":
        return tf.reshape(image, [3, 3]), label
    if WRAPPED == "map_run":
        return tf.io.decode_raw(tf.strings.as_string(label), tf.float64)[:1], label
    if WRAPPED == "py_function":
        label = tf.ensure_shape(tf.py_function(in_python, [label], tf.int64), [])
    return image, label


def dataset():
    labels = np.arange(64) % (12 if WRAPPED == "label" else 10)
    images = np.zeros((64, 8), "float32")
    return tf.data.Dataset.from_tensor_slices((images, labels)).map(decode).batch(16)


def fit():
    with strategy.scope():
        model = build()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if WRAPPED == "loss_shapes":
            loss = own_loss
        model.compile(optimizer="sgd", loss=loss)
    model.fit(dataset(), epochs=1, verbose=0)


def combine(left, right):
    if WRAPPED == "raised_in_function" and left.shape[0] == 2:
        raise RuntimeError("two rows are not enough")
    for _ in tf.range(3):
        left = left + 0.0
    return tf.matmul(left, right)


@tf.function
def replica_step(left, right, index):
    def replica(left, right, index):
        if WRAPPED == "gather_run":
            return tf.gather(left, index)
        if WRAPPED == "reshape_run":
            return tf.reshape(left, [index, index])
        return combine(left, right)

    return strategy.run(replica, args=(left, right, index))


def loop():
    rows = 2 if WRAPPED == "raised_in_function" else 3
    left, right = tf.zeros([rows, 4]), tf.zeros([5, 6])
    for step in range(3):
        print("step", step, replica_step(left, right, tf.constant(7)), flush=True)


IN_LOOP = ("raised_in_function", "matmul", "gather_run", "reshape_run")
loop() if WRAPPED in IN_LOOP else fit()
