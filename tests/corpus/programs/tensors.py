"""The GPU's memory is full, as TensorFlow words it; there is no GPU to fill. The others wait."""

import time

import faults

if faults.ME != faults.WHO:
    time.sleep(120)
import tensorflow as tf

raise tf.errors.ResourceExhaustedError(
    None,
    None,
    "Graph execution error:\n\nDetected at node model/dense/MatMul\nOOM when allocating "
    "tensor with shape[65536,65536] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t "
    "[[{{node model/dense/MatMul}}]]",
)
