"""Writing by TensorFlow's operations, whose errors on files are told from those of a cluster."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tensorflow as tf

from folders import FolderError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OF_FILES = (
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,  # a full disk or quota
    tf.errors.OutOfRangeError,  # a file larger than may be
)
"""Where a peer is lost they are others: Unavailable, Aborted, Cancelled, Internal."""

_NODE = re.compile(r"\{\{.*?\}\}| \[Op:\w+\]")
"""What TensorFlow says of itself beside the file."""


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """For the operations that write to a folder.

    Raises:
        FolderError: they cannot.
    """
    try:
        yield
    except _OF_FILES as error:
        problem = _NODE.sub("", error.message).strip().partition("\n")[0][:300]
        raise FolderError(f"no {what} can be written to {folder}: {problem}") from error
