"""The data: MNIST, Fashion-MNIST, or the drawn digits of this package. Needs no TensorFlow."""

import fcntl
import gzip
import socket
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mnist_job import JobError, first_line

SIDE, CLASSES = 28, 10
_FILES = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
_KEYS = "x_train", "y_train", "x_test", "y_test"
_FIRST_LABELS = {
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
}
"""The files of both have the same names and shapes."""
ONE = np.ones((), np.float32)
_BROKEN = (OSError, ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile, zlib.error)
"""Raised for a file that is damaged or of another kind (TypeError: a single array of numpy)."""


class DataSet(NamedTuple):
    """Grey images (n, 28, 28) of digits or clothes, from 0 (background) to 255, and their classes.

    They stay bytes until they are in a batch. Each training image can have a weight in the loss.
    """

    name: str
    source: str
    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any
    sample_weights: Any = ONE

    @property
    def fingerprint(self) -> int:
        """A checksum of labels and weights, to check that all workers have the same data."""
        parts = (self.train_labels, self.test_labels, self.sample_weights)
        return zlib.crc32(b"".join(part.tobytes() for part in parts))


def load(dataset: str, folder: Path | None) -> DataSet:
    """Returns the images of a folder or of tf_keras.datasets; for `auto`, else synthetic ones."""
    if dataset == "synthetic":
        return synthetic()
    if folder is not None:
        return read_folder(folder, dataset)
    try:
        return _from_keras("mnist" if dataset == "auto" else dataset)
    except JobError as error:
        if dataset != "auto":
            raise
        print(f"{error}: training on synthetic digits instead")
        return synthetic()


def synthetic() -> DataSet:
    """Returns the drawn digits of this package, each moved by up to two pixels in 25 ways."""
    arrays, shifts = [], range(4, -1, -1)
    with np.load(Path(__file__).with_name("digits.npz")) as drawn:
        for half in ("train", "test"):
            pixels = drawn[f"x_{half}"] * np.uint8(36)  # they are from 0 to 7
            padded = np.pad(pixels, ((0, 0), (2, 2), (2, 2)))
            moved = [padded[:, y : y + SIDE, x : x + SIDE] for y in shifts for x in shifts]
            arrays += [np.concatenate(moved), np.tile(drawn[f"y_{half}"], len(moved))]
    return DataSet("synthetic", "synthetic digits", *arrays)


def _from_keras(dataset: str) -> DataSet:
    import tf_keras

    cache = Path.home() / ".keras" / "datasets"
    socket.setdefaulttimeout(10.0)  # seconds for an answer: Keras waits without end
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # The workers of a machine share the cache: only one of them downloads at a time.
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            train, test = getattr(tf_keras.datasets, dataset).load_data()
    except Exception as error:  # Keras raises a bare Exception for a failed download
        found = f"no {dataset} in {cache}, and it cannot be downloaded ({first_line(error)})"
        advice = "name a folder that has it with --data-dir, or use --dataset synthetic"
        raise JobError(f"{found}; {advice}") from error
    finally:
        socket.setdefaulttimeout(None)
    return _checked(cache, dataset, *train, *test)


def read_folder(folder: Path, dataset: str = "mnist") -> DataSet:
    """Reads NAME.npz, which may have weights as `w_train`, or the four idx files, plain or .gz."""
    path, arrays = folder / f"{dataset}.npz", []
    try:
        if path.exists():
            # Opened here, because numpy does not close a file that is no archive. Without
            # allow_pickle, a data file cannot run code.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                keys = [*_KEYS, *({"w_train"} & {*archive.files})]
                return _checked(path, dataset, *(archive[key] for key in keys))
        for name in _FILES:
            path = folder / f"{name}-ubyte.gz"
            path = path if path.exists() else path.with_suffix("")
            content = path.read_bytes()
            arrays.append(_idx(gzip.decompress(content) if path.suffix else content))
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise JobError(f"there is no folder {folder.absolute()}, see --data-dir") from error
        advice = f"put {dataset}.npz there, or {'-ubyte, '.join(_FILES)}-ubyte"
        raise JobError(f"no {dataset} in {folder}: {advice}: it lacks {path.name}") from error
    except _BROKEN as error:
        raise JobError(f"{path} cannot be read ({error}): copy or download it again") from error
    return _checked(folder, dataset, *arrays)


def _idx(content: bytes) -> Any:
    """Reads http://yann.lecun.com/exdb/mnist/: 0, 0, 8, dimensions, each as uint32, and bytes."""
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _checked(
    place: Path, name: str, x_train: Any, y_train: Any, x_test: Any, y_test: Any, own: Any = ONE
) -> DataSet:
    for half, images, labels in (("training", x_train, y_train), ("test", x_test, y_test)):
        fits = images.ndim == 3 and images.shape == (*labels.shape, SIDE, SIDE) and images.any()
        fits = fits and images.dtype == np.uint8 and labels.dtype.kind in "iu"
        if not (fits and 0 <= labels.min() <= labels.max() < CLASSES):
            found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
            wanted = "images uint8 (n, 28, 28), not all black, and n labels from 0 to 9"
            raise JobError(f"{place} is no {name}: it has {half} {found}, not {wanted}")
    for other, first in _FIRST_LABELS.items():
        if other != name and y_train[:10].tolist() == first:
            raise JobError(f"{place} is no {name}: ask for it with --dataset {other}")
    is_weight = own.shape in ((), y_train.shape) and own.dtype.kind in "fiu"
    if not (is_weight and np.isfinite(own).all() and (own >= 0).all()):
        found = f"its w_train is {own.dtype} {own.shape}"
        raise JobError(f"{place}: {found}, not {len(y_train)} numbers from 0")
    y_train, y_test, own = y_train.astype(np.uint8), y_test.astype(np.uint8), own.astype(np.float32)
    return DataSet(name, f"{name} from {place}", x_train, y_train, x_test, y_test, own)
