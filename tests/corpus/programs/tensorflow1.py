"""Code for TensorFlow 1 (OLD says which)."""

import os

import tensorflow as tf

OLD = os.environ["OLD"]


def examples():
    print(tf.examples.tutorials.mnist)


def logging():
    tf.logging.set_verbosity(tf.logging.INFO)


def session():
    with tf.Session() as session:
        session.run(tf.constant(1))


def placeholder():
    tf.placeholder(tf.float32, [None, 784])


def eager_placeholder():
    tf.compat.v1.placeholder(tf.float32, [None, 784])


def contrib():
    tf.contrib.layers.flatten(tf.zeros([2, 2]))


def import_contrib():
    from tensorflow.contrib import learn

    print(learn)


def import_examples():
    from tensorflow.examples.tutorials.mnist import input_data

    print(input_data)


def optimizer():
    tf.train.GradientDescentOptimizer(0.5).minimize(tf.constant(1.0))


def compat_optimizer():
    tf.compat.v1.train.GradientDescentOptimizer(0.5).minimize(tf.constant(1.0))


def gradients():
    x = tf.constant(1.0)
    tf.gradients(x * x, x)


def iterator():
    tf.data.Dataset.range(3).make_one_shot_iterator()


def estimator():
    tf.estimator.RunConfig()


def flags():
    tf.flags.DEFINE_string("job_name", "", "")


globals()[OLD]()
