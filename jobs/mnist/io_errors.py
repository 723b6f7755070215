"""Tells TensorFlow's errors about files from its errors about the cluster."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tensorflow as tf

from directories import DirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FILE_ERRORS = (
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,  # the disk or the quota is full
    tf.errors.OutOfRangeError,  # the file would be larger than allowed
)
"""The loss of a peer raises others: Unavailable, Aborted, Cancelled, Internal."""

_NODE = re.compile(r"\{\{.*?\}\}| \[Op:\w+\]")
"""TensorFlow's own names in a message about a file."""


@contextmanager
def explained_io_errors(what: str, directory: Path) -> Iterator[None]:
    """Explains the file errors of operations that write to a directory.

    Raises:
        DirectoryError: in place of a file error.
    """
    try:
        yield
    except _FILE_ERRORS as error:
        problem = _NODE.sub("", error.message).strip().partition("\n")[0][:300]
        raise DirectoryError(f"no {what} can be written to {directory}: {problem}") from error
