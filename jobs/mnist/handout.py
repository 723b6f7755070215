"""What a worker or ps process hands to the graphs that the chief runs in it.

The chief's graphs run inside these processes but cannot see their Python, and a graph that has
the images in it as a constant is shipped with them: 188 MB to each worker, at each tracing. So
each process puts its own images into anonymous files in memory, at descriptors that all know; a
graph that runs in the process reads `/proc/self/fd/N` and gets them. Nothing is on a disk, and
two jobs on one machine cannot meet.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from digits import SIDE

if TYPE_CHECKING:
    from digits import Bytes, Digits

_IMAGES, _LABELS, _ABOUT = 100, 101, 102
"""Descriptors: above those that a process starts with, and opened before TensorFlow's own."""


class Handout:
    """The files of this process; make it once, before the server starts."""

    def __init__(self, index: int, digits: Digits | None) -> None:
        """Hands out the training images, where there are any, and which task this is."""
        self._index = index
        self._fingerprint = digits.fingerprint if digits else 0
        if digits:
            _publish(_IMAGES, digits.train_images)
            _publish(_LABELS, digits.train_labels)
        _publish(_ABOUT, self._about(leaving=False))

    def say_leaving(self) -> None:
        """Lets the chief know that this process was told to end."""
        os.pwrite(_ABOUT, self._about(leaving=True).tobytes(), 0)

    def _about(self, *, leaving: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([self._index, self._fingerprint, leaving], np.int64)


def _publish(descriptor: int, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    memory = os.memfd_create("distrun-job")
    with os.fdopen(memory, "wb", closefd=False) as file:
        file.write(np.ascontiguousarray(values).data)
    # F_DUPFD rather than dup2, which would silently close whatever is there already.
    if fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, descriptor) != descriptor:
        raise OSError(f"descriptor {descriptor}, which the job needs, is in use already")
    os.close(memory)


# For graphs, which run in a process that has made a Handout -------------------------------------


def task_index(fingerprint: int) -> tf.Tensor:
    """The index of the worker whose process this runs in.

    Args:
        fingerprint: of the chief's data. A worker with other data fails with
            InvalidArgumentError, rather than train on it.
    """
    about = _read(_ABOUT, tf.int64)
    same = tf.debugging.assert_equal(
        about[1],
        tf.constant(fingerprint, tf.int64),
        message="a worker has other data than the chief",
    )
    with tf.control_dependencies([same]):
        return tf.identity(about[0])


def is_leaving() -> tf.Tensor:
    """Whether the process that this runs in was told to end."""
    return _read(_ABOUT, tf.int64)[2] != 0


def training_images(count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The (count, 28, 28) images and (count,) labels of the process that this runs in."""
    pixels: Bytes = tf.reshape(_read(_IMAGES, tf.uint8), (count, SIDE, SIDE))
    return pixels, tf.cast(_read(_LABELS, tf.uint8), tf.int32)


def _read(descriptor: int, kind: tf.DType) -> tf.Tensor:
    return tf.io.decode_raw(tf.io.read_file(f"/proc/self/fd/{descriptor}"), kind)
