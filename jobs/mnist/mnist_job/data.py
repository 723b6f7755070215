"""The data: MNIST, Fashion-MNIST, or the drawn digits of this package. Needs no TensorFlow."""

import fcntl
import gzip
import os
import socket
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mnist_job import JobError

Array: TypeAlias = npt.NDArray[Any]

SIDE = 28
CLASSES = 10
_TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
_FIRST_LABELS = {
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
}
"""The first training labels as published. The files of both sets have the same names and shapes."""
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_HALVES = ("train", "t10k")
_IDX_FILES = [f"{half}-{kind}-ubyte" for half in _HALVES for kind in ("images-idx3", "labels-idx1")]
_BROKEN = (OSError, ValueError, EOFError, IndexError, TypeError, zipfile.BadZipFile, zlib.error)
"""Raised for a file that is damaged or of another kind (TypeError: a single array of numpy)."""
_SHIFTS = range(-2, 3)
"""Pixels by which each drawn digit is moved to the right and down, which makes 25 images of it."""
DOWNLOAD_TIMEOUT = 10.0
"""Seconds that a download may wait for an answer."""


@dataclass(frozen=True)
class DataSet:
    """Grey images (n, 28, 28) of digits or clothes, from 0 (background) to 255, and their classes.

    They stay bytes until they are in a batch: as floats, the training images would take 188 MB.
    """

    name: str
    source: str
    """The origin of the data, for people."""
    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array

    @property
    def fingerprint(self) -> int:
        """A checksum of the labels, to check that all workers have the same data."""
        return zlib.crc32(self.test_labels.tobytes(), zlib.crc32(self.train_labels.tobytes()))


def load(dataset: str, folder: Path | None) -> DataSet:
    """Returns the images to train and test on, from a folder, or from tf_keras.datasets.

    `auto` is MNIST if it is available, otherwise synthetic digits.
    """
    if dataset == "synthetic":
        return synthetic()
    if folder is not None:
        return read_folder(folder, dataset)
    try:
        return _from_keras("mnist" if dataset == "auto" else dataset)
    except JobError as error:
        if dataset == "auto":
            print(f"{error}: training on synthetic digits instead", flush=True)
            return synthetic()
        advice = "name a folder that has it with --data-dir, or use --dataset synthetic"
        raise JobError(f"{error}; {advice}") from error


def synthetic() -> DataSet:
    """Returns the drawn digits of this package: 30,000 training and 5,000 test images."""
    with np.load(Path(__file__).with_name("digits.npz")) as drawn:  # with pixels from 0 to 7
        images = [_shifted(drawn[name] * np.uint8(36)) for name in ("x_train", "x_test")]
        labels = [np.tile(drawn[name], len(_SHIFTS) ** 2) for name in ("y_train", "y_test")]
    return DataSet("synthetic", "synthetic digits", images[0], labels[0], images[1], labels[1])


def _shifted(images: Array) -> Array:
    room = max(_SHIFTS)
    padded = np.pad(images, ((0, 0), (room, room), (room, room)))
    corners = [(room - down, room - right) for down in _SHIFTS for right in _SHIFTS]
    return np.concatenate([padded[:, y : y + SIDE, x : x + SIDE] for y, x in corners])


def _from_keras(dataset: str) -> DataSet:
    """Returns a data set of tf_keras.datasets: from its cache, or downloaded into it."""
    import tf_keras

    cache = Path.home() / ".keras" / "datasets"
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)  # Keras waits without end
    try:
        with suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
        # The workers of a machine share the cache: only one of them downloads at a time.
        with open(cache / ".lock" if cache.is_dir() else os.devnull, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            train, test = getattr(tf_keras.datasets, dataset).load_data()
    except Exception as error:  # Keras raises a bare Exception for a failed download
        reason = getattr(error, "reason", None) or error
        problem = f"it cannot be downloaded ({reason})"
        raise JobError(f"no {_TITLES[dataset]} in {cache}, and {problem}") from error
    finally:
        socket.setdefaulttimeout(None)
    return _checked(cache, dataset, [*train, *test])


def read_folder(folder: Path, dataset: str = "mnist") -> DataSet:
    """Reads NAME.npz, or the four idx files, from a folder that the user named.

    Checks shapes, types and ranges, but no hashes, because MNIST is repacked in many ways.
    """
    if not folder.is_dir():
        raise JobError(f"--data-dir {folder} is not a folder")
    npz = folder / f"{dataset}.npz"
    if npz.exists():
        return _checked(npz, dataset, _read_npz(npz))
    # Two spellings are common: the publication's own, and that of some unpackers.
    paths = {name: sorted(folder.glob(f"{name.replace('-', '[-.]')}*")) for name in _IDX_FILES}
    if absent := [name for name in paths if not paths[name]]:
        advice = f"put {dataset}.npz there, or complete its idx files (plain or .gz)"
        raise JobError(
            f"no {_TITLES[dataset]} in {folder}: {advice}: it lacks {' and '.join(absent)}"
        )
    return _checked(folder, dataset, [_read_idx(found[0]) for found in paths.values()])


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise JobError(f"{path} cannot be read ({error}): copy or download it again") from error


def _read_npz(path: Path) -> list[Array]:
    # Opened here, because numpy does not close a file that is no archive.
    # allow_pickle=False: a data file must not be able to run code.
    with _explained(path), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if absent := [key for key in _KEYS if key not in archive]:
            problem = f"it has no {', '.join(absent)} (it has {', '.join(archive.files)})"
            raise JobError(f"{path} is not as Keras's mnist.npz: {problem}")
        return [archive[key] for key in _KEYS]


def _read_idx(path: Path) -> Array:
    """Reads one idx file of bytes, plain or gzip (http://yann.lecun.com/exdb/mnist/).

    0, 0, the type (8: uint8), the number of dimensions, each as a big-endian uint32, the values.
    """
    with _explained(path):
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        if content[:3] != bytes((0, 0, 8)):
            raise ValueError(f"it begins with {content[:4].hex(' ')!r}, as no idx file of bytes")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _checked(place: Path, dataset: str, arrays: list[Array]) -> DataSet:
    x_train, y_train, x_test, y_test = arrays
    problem = _problem("training", x_train, y_train) or _problem("test", x_test, y_test)
    for name, first in _FIRST_LABELS.items():
        if not problem and name != dataset and y_train[:10].tolist() == first:
            problem = f"it is {_TITLES[name]}: ask for it with --dataset {name}"
    if problem:
        raise JobError(f"{place} is no {_TITLES[dataset]}: {problem}")
    y_train, y_test = y_train.astype(np.uint8), y_test.astype(np.uint8)
    return DataSet(dataset, f"{dataset} from {place}", x_train, y_train, x_test, y_test)


def _problem(half: str, images: Array, labels: Array) -> str | None:
    """The reason why one half of the data cannot be used: its shapes, types or ranges."""
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        return f"the {half} images are {images.dtype} {images.shape}, not uint8 (n, {SIDE}, {SIDE})"
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        return f"the {half} labels are {labels.dtype} {labels.shape}, not integers (n,)"
    if len(images) != len(labels):
        return f"there are {len(images)} {half} images but {len(labels)} {half} labels"
    if not len(images):
        return f"there are no {half} images"
    if labels.min() < 0 or labels.max() >= CLASSES:
        return f"the {half} labels go from {labels.min()} to {labels.max()}, not from 0 to 9"
    return None if images.any() else f"the {half} images are all black"
