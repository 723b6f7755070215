"""The data: MNIST, Fashion-MNIST, or the drawn digits of this package. Needs no TensorFlow."""

import fcntl
import gzip
import os
import socket
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mnist_job import JobError

Array: TypeAlias = npt.NDArray[Any]

SIDE, CLASSES = 28, 10
_TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
_FIRST_LABELS = {
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
}
"""The first training labels as published. The files of both sets have the same names and shapes."""
_KEYS = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
"""The keys of NAME.npz, and the idx files that hold the same; these may be compressed (.gz)."""
_WEIGHTS = "w_train"
"""The key of NAME.npz for the training images' own weights in the loss; it may be absent."""
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
    sample_weights: Array = field(default_factory=lambda: np.ones((), np.float32))
    """Each training image's own weight in the loss (n,), or one number for all."""

    @property
    def fingerprint(self) -> int:
        """A checksum of labels and weights, to check that all workers have the same data."""
        parts = (self.train_labels, self.test_labels, self.sample_weights)
        return zlib.crc32(b"".join(part.tobytes() for part in parts))


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
        problem = f"it cannot be downloaded ({getattr(error, 'reason', None) or error})"
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
    path = folder / f"{dataset}.npz"
    try:
        if path.exists():
            # Opened here, because numpy does not close a file that is no archive. Without
            # allow_pickle, a data file cannot run code.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                if absent := [key for key in _KEYS if key not in archive]:
                    problem = f"has no {', '.join(absent)} (it has {', '.join(archive.files)})"
                    raise JobError(f"{path} is not as Keras's mnist.npz: it {problem}")
                weights = archive.get(_WEIGHTS)
                return _checked(path, dataset, [archive[key] for key in _KEYS], weights)
        arrays = []
        for name in _KEYS.values():
            path = next((each for each in sorted(folder.glob(f"{name}*"))), folder / name)
            arrays.append(_read_idx(path))
    except FileNotFoundError as error:
        advice = f"put {dataset}.npz there, or the idx files {', '.join(_KEYS.values())}"
        lacks = f"it lacks {path.name}"
        raise JobError(f"no {_TITLES[dataset]} in {folder}: {advice}: {lacks}") from error
    except _BROKEN as error:
        raise JobError(f"{path} cannot be read ({error}): copy or download it again") from error
    return _checked(folder, dataset, arrays)


def _read_idx(path: Path) -> Array:
    """Reads one idx file of bytes, plain or gzip (http://yann.lecun.com/exdb/mnist/).

    0, 0, the type (8: uint8), the number of dimensions, each as a big-endian uint32, the values.
    """
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    if content[:3] != bytes((0, 0, 8)):
        raise ValueError(f"it begins with {content[:4].hex(' ')!r}, as no idx file of bytes")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _checked(
    place: Path, dataset: str, arrays: list[Array], weights: Array | None = None
) -> DataSet:
    x_train, y_train, x_test, y_test = arrays
    problem = _problem("training", x_train, y_train) or _problem("test", x_test, y_test)
    for name, first in _FIRST_LABELS.items():
        if not problem and name != dataset and y_train[:10].tolist() == first:
            problem = f"it is {_TITLES[name]}: ask for it with --dataset {name}"
    if problem:
        raise JobError(f"{place} is no {_TITLES[dataset]}: {problem}")
    images, classes = (x_train, x_test), (y_train.astype(np.uint8), y_test.astype(np.uint8))
    found = (dataset, f"{dataset} from {place}", images[0], classes[0], images[1], classes[1])
    if weights is None:
        return DataSet(*found)
    fits = weights.shape == y_train.shape and weights.dtype.kind in "fiu"
    if not (fits and np.isfinite(weights).all() and (weights >= 0).all()):
        wanted = f"{len(y_train)} numbers from 0"
        raise JobError(f"{place}: its {_WEIGHTS} is {weights.dtype} {weights.shape}, not {wanted}")
    return DataSet(*found, weights.astype(np.float32))


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
