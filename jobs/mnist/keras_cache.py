"""The data sets in Keras's cache: the same files, places and addresses as Keras uses."""

from __future__ import annotations

from pathlib import Path

from archive import read_idx_files, read_npz
from digits import TITLES, DataError, Digits
from download import CONNECT_SECONDS, DownloadError, fetch

BASE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
FILES = {
    "mnist": {
        "mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
        ),
        "train-labels-idx1-ubyte.gz": (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
        ),
        "t10k-images-idx3-ubyte.gz": (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
        ),
        "t10k-labels-idx1-ubyte.gz": (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
        ),
    },
}
"""The sha256 of each file. Addresses, names and MNIST's hash are from tf_keras.datasets. The hashes
of Fashion-MNIST are those of the files that its authors publish."""

_SUBFOLDERS = {"fashion_mnist": "fashion-mnist"}


def cache_folder(dataset: str) -> Path:
    """The folder in which tf_keras.utils.get_file keeps the data set."""
    return Path.home() / ".keras" / "datasets" / _SUBFOLDERS.get(dataset, "")


def read_or_download(
    folder: Path,
    dataset: str = "mnist",
    base: str = BASE,
    files: dict[str, str] | None = None,
    connect_seconds: float = CONNECT_SECONDS,
) -> Digits:
    """Returns Keras's data set from the cache. Downloads the files that are missing or damaged.

    Raises:
        DataError: it is not there and cannot be downloaded.
    """
    for name, sha256 in (files or FILES[dataset]).items():
        try:
            fetch(base + name, sha256, folder / name, connect_seconds)
        except DownloadError as error:
            raise DataError(f"no {TITLES[dataset]} in {folder}, and {error}") from error
    npz = folder / f"{dataset}.npz"
    return read_npz(npz, dataset) if npz.exists() else read_idx_files(folder, dataset)
