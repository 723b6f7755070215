"""The options that a checkpoint was trained with, saved in it and compared when it is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from arguments import Arguments

TRAINING = ("dataset", "data", "model", "optimizer")
"""Options that a resumed run must share with the checkpoint."""
EVALUATION = ("dataset", "data", "model")
_MAY_BE_MISSING = ("data",)
"""Checkpoints of earlier versions do not have these."""

_KEY = "origin/.ATTRIBUTES/VARIABLE_VALUE"
"""The name in the file of the variable that is the attribute `origin` of tf.train.Checkpoint."""


class MismatchError(Exception):
    """The checkpoint is from another run or program: the message says how it differs."""


def variable(arguments: Arguments) -> tf.Variable:
    """The options in a variable. It must be the attribute `origin` of a tf.train.Checkpoint."""
    words = " ".join(f"{name}={getattr(arguments, name)}" for name in TRAINING)
    with tf.device("/cpu:0"):
        return tf.Variable(words, dtype=tf.string)


def check(path: str, arguments: Arguments, names: tuple[str, ...]) -> None:
    """Checks that a checkpoint was trained with the same options as this run.

    Args:
        path: the checkpoint.
        arguments: the options of this run.
        names: the options to compare: TRAINING or EVALUATION.

    Raises:
        MismatchError: it was trained with others.
        OpError, ValueError, IndexError, RuntimeError: it cannot be read.
    """
    reader = tf.train.load_checkpoint(path)
    if not reader.has_tensor(_KEY):
        raise MismatchError("it is no checkpoint of this program")
    words = reader.get_tensor(_KEY).decode().split()
    trained = dict(word.split("=", 1) for word in words)
    for name in names:
        asked = getattr(arguments, name)
        if name in _MAY_BE_MISSING and name not in trained:
            continue
        if trained.get(name) != asked:
            raise MismatchError(f"it was trained with --{name} {trained.get(name)}, not {asked}")
