"""Errors of TensorFlow's own, in one task; the others wait."""

import os
import time

import faults

if faults.ME != faults.WHO:
    time.sleep(120)
import tensorflow as tf


def compute(what):
    if what == "gpu":  # as TensorFlow words it; there is no GPU to fill
        raise tf.errors.ResourceExhaustedError(
            None,
            None,
            "Graph execution error:\n\nDetected at node model/dense/MatMul\nOOM when allocating "
            "tensor with shape[65536,65536] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t "
            "[[{{node model/dense/MatMul}}]]",
        )
    if what == "cpu_memory":
        return tf.reduce_sum(tf.random.normal([1000000, 1000000]))
    if what == "nan":
        return tf.debugging.check_numerics(tf.math.log(tf.constant([-1.0])), "the loss")
    if what == "range":
        iterator = iter(tf.data.Dataset.range(3))
        return [iterator.get_next() for _ in range(4)]
    if what == "stop":
        iterator = iter(tf.data.Dataset.range(3))
        return [next(iterator) for _ in range(4)]
    if what == "invalid":
        return tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
    if what == "missing":
        return next(iter(tf.data.TFRecordDataset("data/train.tfrecord")))
    if what == "abort":
        return tf.raw_ops.Abort(error_msg="the queue is in no state to go on")
    raise SystemExit(f"no such error: {what}")


with tf.device("CPU:0"):
    print(compute(faults.WHAT))
