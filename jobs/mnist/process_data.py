"""Data of a worker or ps process that the chief's graphs can read.

The chief's graphs run inside these processes but cannot see their Python objects. If the images
were constants of a graph, each tracing would send 188 MB to each worker. So each process writes
its own images to anonymous files in memory, at fixed descriptors. A graph that runs in the process
reads them from `/proc/self/fd/N`. Nothing is on a disk, and two jobs on one machine cannot collide.
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
"""Descriptors: higher than those a process starts with, and opened before TensorFlow opens any."""


class ProcessData:
    """The files of this process. Create it once, before the server starts."""

    def __init__(self, index: int, digits: Digits | None) -> None:
        """Publishes the index of this task and, for a worker, its training images."""
        self._index = index
        self._fingerprint = digits.fingerprint if digits else 0
        if digits:
            _publish(_IMAGES, digits.train_images)
            _publish(_LABELS, digits.train_labels)
        _publish(_ABOUT, self._about(leaving=False))

    def announce_shutdown(self) -> None:
        """Tells the chief that this process has received SIGTERM."""
        os.pwrite(_ABOUT, self._about(leaving=True).tobytes(), 0)

    def _about(self, *, leaving: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([self._index, self._fingerprint, leaving], np.int64)


def _publish(descriptor: int, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    memory = os.memfd_create("distrun-job")
    with os.fdopen(memory, "wb", closefd=False) as file:
        file.write(np.ascontiguousarray(values).data)
    # F_DUPFD, because dup2 would silently close a descriptor that is in use.
    if fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, descriptor) != descriptor:
        raise OSError(f"descriptor {descriptor}, which the job needs, is in use already")
    os.close(memory)


# For graphs that run in a process with a ProcessData -----------------------------------------


def task_index(fingerprint: int) -> tf.Tensor:
    """The index of the worker in whose process the graph runs.

    Args:
        fingerprint: of the chief's data. A worker with other data fails with
            InvalidArgumentError.
    """
    about = _read(_ABOUT, tf.int64)
    same = tf.debugging.assert_equal(
        about[1],
        tf.constant(fingerprint, tf.int64),
        message="a worker has other data than the chief",
    )
    with tf.control_dependencies([same]):
        return tf.identity(about[0])


def is_shutting_down() -> tf.Tensor:
    """Whether the process in which the graph runs has received SIGTERM."""
    return _read(_ABOUT, tf.int64)[2] != 0


def training_images(count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The (count, 28, 28) images and (count,) labels of the process in which the graph runs."""
    pixels: Bytes = tf.reshape(_read(_IMAGES, tf.uint8), (count, SIDE, SIDE))
    return pixels, tf.cast(_read(_LABELS, tf.uint8), tf.int32)


def _read(descriptor: int, kind: tf.DType) -> tf.Tensor:
    return tf.io.decode_raw(tf.io.read_file(f"/proc/self/fd/{descriptor}"), kind)
