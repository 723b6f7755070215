"""What a checkpoint was trained with, kept in it, so that one run is not taken for another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from arguments import Arguments

TRAINING = ("dataset", "data", "model", "optimizer")
"""What a run that resumes must have in common with the checkpoint."""
EVALUATION = ("dataset", "data", "model")
_MAY_BE_UNKNOWN = ("data",)
"""What checkpoints of earlier versions do not hold."""

_KEY = "origin/.ATTRIBUTES/VARIABLE_VALUE"
"""Where tf.train.Checkpoint keeps the variable that is its attribute `origin`."""


class ForeignError(Exception):
    """The checkpoint is another run's or another program's: the text says how it differs."""


def variable(arguments: Arguments) -> tf.Variable:
    """What is kept, to be made the attribute `origin` of a tf.train.Checkpoint."""
    words = " ".join(f"{name}={getattr(arguments, name)}" for name in TRAINING)
    with tf.device("/cpu:0"):
        return tf.Variable(words, dtype=tf.string)


def check(path: str, arguments: Arguments, names: tuple[str, ...]) -> None:
    """Checks that a checkpoint was trained with what is asked for now.

    Raises:
        ForeignError: it was not.
        OpError, ValueError, IndexError, RuntimeError: it cannot be read.
    """
    reader = tf.train.load_checkpoint(path)
    if not reader.has_tensor(_KEY):
        raise ForeignError("it is no checkpoint of this program")
    words = reader.get_tensor(_KEY).decode().split()
    trained = dict(word.split("=", 1) for word in words)
    for name in names:
        asked = getattr(arguments, name)
        if name in _MAY_BE_UNKNOWN and name not in trained:
            continue
        if trained.get(name) != asked:
            raise ForeignError(f"it was trained with --{name} {trained.get(name)}, not {asked}")
