"""A small Keras model and Model.fit, with one thing wrong (HOW)."""

import os

import fate

HOW = os.environ["HOW"]
if HOW == "tensorboard":
    import glob
    import sys
    import tempfile

    for number, folder in enumerate(sys.path):
        if glob.glob(os.path.join(folder, "tensorboard*")):
            without = tempfile.mkdtemp()
            for name in os.listdir(folder):
                if not name.startswith("tensorboard"):
                    os.symlink(os.path.join(folder, name), os.path.join(without, name))
            sys.path[number] = without

import numpy as np
import tensorflow as tf

keras = tf.keras


class Scale(keras.layers.Layer):
    def build(self, shape):
        self.factors = self.add_weight(
            name="factors", shape=(9 if HOW == "factors" else shape[-1],), initializer="ones"
        )

    def call(self, inputs):
        if HOW == "setting":
            return inputs * SETTINGS["scale"]
        if HOW == "logarithm":
            inputs = tf.debugging.check_numerics(tf.math.log(inputs - 100.0), "log of the areas")
        return inputs * self.factors


SETTINGS = {"rate": 0.1}


def rows():
    for number in range(100):
        if HOW == "generator" and number == 40:
            raise fate.QuotaError(f"row {number} of houses.csv has 3 columns, not 4")
        yield np.full(4, number, "float32"), number % 5


def parse(features, label):
    if HOW == "parse":
        features = tf.io.decode_csv("1.0,two,3.0,4.0", [0.0] * 4)
        features = tf.stack(features)
    if HOW == "reshape":
        features = tf.reshape(features, [tf.cast(label, tf.int32) + 1, -1])
    return features, label


class Regressor(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([keras.layers.Dense(8), Scale(), keras.layers.Dense(5)])

    def call(self, inputs):
        return self.body(inputs)

    def train_step(self, data):
        if HOW == "step":
            features, label, weight = data
        return super().train_step(data)


signature = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64))
data = tf.data.Dataset.from_generator(rows, output_signature=signature).map(parse).batch(10)
scope = (
    tf.distribute.MultiWorkerMirroredStrategy()
    if HOW == "several"
    else tf.distribute.MirroredStrategy()
)
with scope.scope():
    model = Regressor()
    loss = "sparse_categorical_crossentropy"
    if HOW == "rank":
        loss = "categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.1), loss)
if HOW == "classes":
    data = data.map(lambda features, label: (features, label + 90))
if HOW == "weights":
    model.load_weights("best.weights.h5")
callbacks = []
if HOW == "tensorboard":
    callbacks = [keras.callbacks.TensorBoard("curves")]
model.fit(data, epochs=2, callbacks=callbacks, verbose=2)
