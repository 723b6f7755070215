"""The images and labels of a run, and checks of them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pathlib import Path

Bytes: TypeAlias = npt.NDArray[np.uint8]

SIDE = 28
CLASSES = 10
TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The titles of the data sets, by their names on the command line."""

_FIRST_LABELS = {
    "mnist": bytes((5, 0, 4, 1, 9, 2, 1, 3, 1, 4)),
    "fashion_mnist": bytes((9, 0, 0, 3, 0, 2, 7, 2, 5, 5)),
}
"""The first training labels as published. The files of both sets have the same names and shapes."""


class DataError(Exception):
    """The data is not available: the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Grey images of digits or clothes, from 0 (background) to 255, and their classes.

    They stay bytes until they are in a batch: as floats, the training images would take 188 MB.
    """

    source: str
    """The origin of the data, for people."""
    train_images: Bytes
    """(n, 28, 28)"""
    train_labels: Bytes
    """(n,)"""
    test_images: Bytes
    """(m, 28, 28)"""
    test_labels: Bytes
    """(m,)"""
    are_synthetic: bool = False

    @property
    def fingerprint(self) -> int:
        """A checksum of the labels, to check that all workers have the same data.

        The labels of two data sets differ. Drawn images may differ between machines in the last bit
        of a pixel, which does no harm.
        """
        return zlib.crc32(self.test_labels.tobytes(), zlib.crc32(self.train_labels.tobytes()))


def check(name: str, images: npt.NDArray[np.generic], labels: npt.NDArray[np.generic]) -> None:
    """Checks shapes, types and ranges of one half (training or test) of the data.

    Raises:
        DataError: the message says what is wrong. The caller adds the path.
    """
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise DataError(
            f"the {name} images are {images.dtype} {images.shape}, not uint8 (n, {SIDE}, {SIDE})"
        )
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"the {name} labels are {labels.dtype} {labels.shape}, not integers (n,)")
    if len(images) != len(labels):
        raise DataError(f"there are {len(images)} {name} images but {len(labels)} {name} labels")
    if not len(images):
        raise DataError(f"there are no {name} images")
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(
            f"the {name} labels go from {labels.min()} to {labels.max()}, not from 0 to 9"
        )
    if not images.any():
        raise DataError(f"the {name} images are all black")


def check_is_dataset(dataset: str, train_labels: npt.NDArray[np.generic]) -> None:
    """Checks that the labels are those of this data set.

    Raises:
        DataError: they are those of another data set.
    """
    first = train_labels[:10].astype(np.uint8).tobytes()
    for name, labels in _FIRST_LABELS.items():
        if name != dataset and first == labels:
            raise DataError(f"it is {TITLES[name]}: ask for it with --dataset {name}")


def missing(dataset: str, folder: Path) -> DataError:
    return DataError(
        f"no {TITLES[dataset]} in {folder}: put {dataset}.npz there, or the four files "
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte (plain or .gz)"
    )
