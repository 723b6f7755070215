"""Code for Keras 2 that runs under Keras 3 (OLD says which)."""

import os

import numpy as np
import tensorflow as tf

OLD = os.environ["OLD"]
keras = tf.keras
layers = keras.layers
data = (np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32"))


def model():
    built = keras.Sequential([layers.Input((4,)), layers.Dense(1)])
    built.compile("sgd", "mse")
    return built


def reset_states():
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    accuracy.reset_states()


def save_weights():
    model().save_weights("weights/epoch-1")


def save():
    model().save("trained")


def load():
    keras.models.load_model("trained")


def checkpoint_callback():
    model().fit(*data, callbacks=[keras.callbacks.ModelCheckpoint("ckpt/{epoch}")])


def keras_tensor():
    inputs = layers.Input((4,))
    keras.Model(inputs, tf.reduce_mean(inputs, axis=1))


def rate():
    keras.optimizers.SGD(lr=0.1)


def rate_read():
    optimizer = keras.optimizers.SGD(0.1)
    print(optimizer.lr)


def workers():
    model().fit(*data, workers=4, use_multiprocessing=True)


def generator():
    model().fit_generator(iter([data]))


def experimental():
    layers.experimental.preprocessing.Rescaling(1 / 255)


def backend():
    keras.backend.set_learning_phase(1)


def add_weight():
    class Own(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight("kernel", shape=(4, 2))

    Own().build((None, 4))


globals()[OLD]()
