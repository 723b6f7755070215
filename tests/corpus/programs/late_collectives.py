"""The mistake of making tensors before the strategy."""

import os

import tensorflow as tf

if os.environ["DISTRUN_TASK"] in os.environ["LATE"].split(","):
    print("warm-up", float(tf.reduce_sum(tf.ones([4]))))
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0)
print("weight", weight.numpy())
