"""One small factory for each `tf.distribute` strategy the job can train with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from arguments import Arguments


def default(_arguments: Arguments) -> tf.distribute.Strategy:
    """No distribution: TensorFlow's own default."""
    return tf.distribute.get_strategy()


def one_device(arguments: Arguments) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy(arguments.device)


def mirrored(_arguments: Arguments) -> tf.distribute.Strategy:
    """All GPUs of this machine, or its CPU."""
    return tf.distribute.MirroredStrategy()


def multi_worker_mirrored(_arguments: Arguments) -> tf.distribute.Strategy:
    """All tasks of TF_CONFIG; returns when every one of them has come this far."""
    return tf.distribute.MultiWorkerMirroredStrategy()


FACTORIES: dict[str, Callable[[Arguments], tf.distribute.Strategy]] = {
    factory.__name__: factory for factory in (default, one_device, mirrored, multi_worker_mirrored)
}
"""By the names that arguments.STRATEGIES lists."""
