"""Lines of scripts for TensorFlow 1, one a run (HOW)."""

import os

HOW = os.environ["HOW"]
if HOW == "tutorials":
    from tensorflow.examples.tutorials.mnist import input_data

    mnist = input_data.read_data_sets("MNIST_data", one_hot=True)
if HOW == "slim":
    from tensorflow.contrib import slim

    print(slim.nets)

import tensorflow as tf


def main(_):
    if HOW == "hooks":
        hooks = [tf.train.StopAtStepHook(last_step=100)]
        print(hooks)
    if HOW == "optimizer":
        tf.train.AdagradOptimizer(0.01).minimize(0)
    if HOW == "sessions":
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
    if HOW == "variables":
        with tf.variable_scope("layer"):
            tf.get_variable("weights", [3, 3])
    if HOW == "graph":
        from tensorflow import placeholder

        placeholder(tf.float32)


if __name__ == "__main__":
    tf.app.run() if HOW == "app" else main(None)
