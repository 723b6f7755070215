"""Code for Keras 2, one statement of it a run (HOW)."""

import os

import numpy as np
import tensorflow as tf

HOW = os.environ["HOW"]
inputs = tf.keras.Input((4,))
hidden = tf.keras.layers.Dense(3)(inputs)
if HOW == "tensors":
    hidden = tf.math.l2_normalize(hidden, axis=1)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
if HOW == "decay":
    optimizer = tf.keras.optimizers.Adam(lr=0.01)
else:
    optimizer = tf.keras.optimizers.Adam(0.01)
loss = tf.keras.losses.MeanSquaredError()
if HOW == "reduction":
    loss = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.SUM)
mean = tf.keras.metrics.Mean()
data = tf.data.Dataset.from_tensor_slices((np.ones((32, 4), "f"), np.ones((32, 1), "f"))).batch(8)
model.compile(optimizer, loss)
callbacks = []
if HOW == "saved":
    callbacks = [tf.keras.callbacks.ModelCheckpoint("saved/{epoch}", save_weights_only=True)]
for epoch in range(2):
    model.fit(data, verbose=2, callbacks=callbacks)
    mean.update_state(epoch)
    print(float(mean.result()))
    if HOW == "metric":
        mean.reset_states()
