"""Reads a data set from a disk: from one .npz, or from the four idx files of its publication."""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from digits import TITLES, Bytes, DataError, Digits, check, check_is_dataset, missing

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_IDX_STEMS = (
    ("train-images", "idx3-ubyte"),
    ("train-labels", "idx1-ubyte"),
    ("t10k-images", "idx3-ubyte"),
    ("t10k-labels", "idx1-ubyte"),
)
_IDX_UINT8 = 0x08
_BROKEN = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)
"""Numpy raises these for a file that is no archive of arrays (TypeError: a single array)."""


def read_folder(folder: Path, dataset: str = "mnist") -> Digits:
    """Reads a data set from a folder that the user named.

    Checks shapes, types and ranges, but no hashes, because MNIST is repacked in many ways.

    Raises:
        DataError: there is none, it is broken, or it is the other data set.
    """
    if not folder.is_dir():
        raise DataError(f"--data-dir {folder} is not a folder")
    npz = folder / f"{dataset}.npz"
    if npz.exists():
        return read_npz(npz, dataset)
    return read_idx_files(folder, dataset)


def read_npz(path: Path, dataset: str = "mnist") -> Digits:
    """Reads an archive like Keras's, with the keys x_train, y_train, x_test and y_test.

    Raises:
        DataError: it is truncated, is no such archive, or has other content.
    """
    try:
        # Opened here, because numpy does not close a file that is no archive.
        # allow_pickle=False: a data file must not be able to run code.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            absent = [key for key in _KEYS if key not in archive]
            if absent:
                raise DataError(
                    f"{path} is not as Keras's mnist.npz: it has no {', '.join(absent)} "
                    f"(it has {', '.join(archive.files)})"
                )
            arrays = [archive[key] for key in _KEYS]
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read ({error}): copy or download it again") from error
    return _digits(path, dataset, *arrays)


def read_idx_files(folder: Path, dataset: str = "mnist") -> Digits:
    """Reads the four files of a data set.

    Raises:
        DataError: not all are there, or one is broken.
    """
    paths = [_find_idx(folder, stem, kind) for stem, kind in _IDX_STEMS]
    found = [path for path in paths if path is not None]
    if not found:
        raise missing(dataset, folder)
    if len(found) < len(paths):
        absent = [
            f"{stem}-{kind}"
            for (stem, kind), path in zip(_IDX_STEMS, paths, strict=True)
            if path is None
        ]
        raise DataError(f"{folder} lacks {' and '.join(absent)} (plain or .gz)")
    return _digits(folder, dataset, *(read_idx(path) for path in found))


def _find_idx(folder: Path, stem: str, kind: str) -> Path | None:
    # Two spellings are common: the publication's own, and that of some unpackers.
    for name in (f"{stem}-{kind}", f"{stem}.{kind}"):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.exists():
                return path
    return None


def read_idx(path: Path) -> Bytes:
    """Reads one idx file of bytes, plain or gzip.

    The format: two zero bytes, the type (8: uint8), the number of dimensions, each dimension as
    a big-endian uint32, the values (http://yann.lecun.com/exdb/mnist/).

    Raises:
        DataError: it is truncated, or is no such file.
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): copy or download it again") from error
    if len(content) < 4 or content[:3] != bytes((0, 0, _IDX_UINT8)) or not 1 <= content[3] <= 4:
        raise DataError(f"{path} is no idx file of bytes: it begins with {content[:4].hex(' ')}")
    values_at = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, values_at, 4))
    if len(content) != values_at + math.prod(shape):
        raise DataError(
            f"{path} is damaged: {len(content):,} bytes where its header {shape} asks for "
            f"{values_at + math.prod(shape):,}; copy or download it again"
        )
    return np.frombuffer(content, np.uint8, offset=values_at).reshape(shape)


def _digits(
    place: Path,
    dataset: str,
    train_images: npt.NDArray[np.generic],
    train_labels: npt.NDArray[np.generic],
    test_images: npt.NDArray[np.generic],
    test_labels: npt.NDArray[np.generic],
) -> Digits:
    try:
        check("training", train_images, train_labels)
        check("test", test_images, test_labels)
        check_is_dataset(dataset, train_labels)
    except DataError as error:
        raise DataError(f"{place} is no {TITLES[dataset]}: {error}") from None
    return Digits(
        source=f"{dataset} from {place}",
        train_images=train_images.astype(np.uint8, copy=False),
        train_labels=train_labels.astype(np.uint8, copy=False),
        test_images=test_images.astype(np.uint8, copy=False),
        test_labels=test_labels.astype(np.uint8, copy=False),
    )
