"""The data: MNIST, Fashion-MNIST, or the drawn digits of this package. Needs no TensorFlow."""

import fcntl
import gzip
import socket
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mnist_job import JobError, workarounds

SIDE, CLASSES = 28, 10
DOWNLOAD_TIMEOUT = 10.0  # seconds for an answer: Keras waits without end
_FILES = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
_KEYS = "x_train", "y_train", "x_test", "y_test"
_BROKEN = (OSError, ValueError, EOFError, IndexError, TypeError, zipfile.BadZipFile, zlib.error)
"""Raised for a file that is damaged or of another kind (TypeError: a single array of numpy)."""


class DataSet(NamedTuple):
    """Grey images (n, 28, 28) of digits or clothes, from 0 (background) to 255, and their classes.

    They stay bytes until they are in a batch: as floats, the training images would take 188 MB.
    `source` is for people. Each training image can have a weight in the loss (n,).
    """

    name: str
    source: str
    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any
    sample_weights: Any = np.ones((), np.float32)

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
            advice = "name a folder that has it with --data-dir, or use --dataset synthetic"
            raise JobError(f"{error}; {advice}") from error
        print(f"{error}: training on synthetic digits instead", flush=True)
        return synthetic()


def synthetic() -> DataSet:
    """Returns the drawn digits of this package, each moved by up to two pixels in 25 ways."""
    corners, arrays = [(y, x) for y in range(4, -1, -1) for x in range(4, -1, -1)], []
    with np.load(Path(__file__).with_name("digits.npz")) as drawn:
        for half in ("train", "test"):
            pixels = drawn[f"x_{half}"] * np.uint8(36)  # they are from 0 to 7
            padded = np.pad(pixels, ((0, 0), (2, 2), (2, 2)))
            moved = [padded[:, y : y + SIDE, x : x + SIDE] for y, x in corners]
            arrays += [np.concatenate(moved), np.tile(drawn[f"y_{half}"], len(corners))]
    return DataSet("synthetic", "synthetic digits", *arrays)


def _from_keras(dataset: str) -> DataSet:
    """Returns a data set of tf_keras.datasets: from its cache, or downloaded into it."""
    import tf_keras

    cache = Path.home() / ".keras" / "datasets"
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # The workers of a machine share the cache: only one of them downloads at a time.
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            train, test = getattr(tf_keras.datasets, dataset).load_data()
    except Exception as error:  # Keras raises a bare Exception for a failed download
        problem = f"it cannot be downloaded ({getattr(error, 'reason', None) or error})"
        raise JobError(f"no {dataset} in {cache}, and {problem}") from error
    finally:
        socket.setdefaulttimeout(None)
    return _checked(cache, dataset, [*train, *test])


def read_folder(folder: Path, dataset: str = "mnist") -> DataSet:
    """Reads NAME.npz, which may have weights as `w_train`, or the four idx files, plain or .gz."""
    path = folder / f"{dataset}.npz"
    try:
        if path.exists():
            # Opened here, because numpy does not close a file that is no archive. Without
            # allow_pickle, a data file cannot run code.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                if absent := [key for key in _KEYS if key not in archive]:
                    problem = f"has no {', '.join(absent)} (it has {', '.join(archive.files)})"
                    raise JobError(f"{path} is not as Keras's mnist.npz: it {problem}")
                keys = [*_KEYS, *({"w_train"} & {*archive.files})]
                return _checked(path, dataset, [archive[key] for key in keys])
        arrays = []
        for name in _FILES:
            path = folder / f"{name}-ubyte.gz"
            path = path if path.exists() else path.with_suffix("")
            content = path.read_bytes()
            arrays.append(_idx(gzip.decompress(content) if path.suffix else content))
    except FileNotFoundError as error:
        advice = f"put {dataset}.npz there, or {'-ubyte, '.join(_FILES)}-ubyte"
        raise JobError(f"no {dataset} in {folder}: {advice}: it lacks {path.name}") from error
    except _BROKEN as error:
        raise JobError(f"{path} cannot be read ({error}): copy or download it again") from error
    return _checked(folder, dataset, arrays)


def _idx(content: bytes) -> Any:
    """Reads http://yann.lecun.com/exdb/mnist/: 0, 0, 8, dimensions, each as uint32, and bytes."""
    if content[:3] != bytes((0, 0, 8)):
        raise ValueError(f"it begins with {content[:4].hex(' ')!r}, as no idx file of bytes")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _checked(place: Path, name: str, arrays: list[Any]) -> DataSet:
    train, test, own = arrays[:2], arrays[2:4], arrays[4:]
    for half, images, labels in (("training", *train), ("test", *test)):
        count = len(labels) if labels.ndim == 1 else 0
        fits = images.shape == (count, SIDE, SIDE) and images.dtype == np.uint8 and images.any()
        if not (fits and labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < CLASSES):
            found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
            wanted = "images uint8 (n, 28, 28), not all black, and n labels from 0 to 9"
            raise JobError(f"{place} is no {name}: it has {half} {found}, not {wanted}")
    if other := workarounds.other_data_set(name, train[1]):
        raise JobError(f"{place} is no {name}: ask for it with --dataset {other}")
    for each in own:
        is_weight = each.shape == train[1].shape and each.dtype.kind in "fiu"
        if not (is_weight and np.isfinite(each).all() and (each >= 0).all()):
            found = f"its w_train is {each.dtype} {each.shape}"
            raise JobError(f"{place}: {found}, not {len(train[1])} numbers from 0")
    plain = [train[0], train[1].astype(np.uint8), test[0], test[1].astype(np.uint8)]
    return DataSet(name, f"{name} from {place}", *plain, *(each.astype(np.float32) for each in own))
