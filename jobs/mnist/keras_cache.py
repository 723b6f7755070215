"""MNIST as Keras caches it: the same file in the same place, from the same address."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from archive import NPZ, read_npz
from digits import DataError, Digits

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
"""Both as in tf_keras.datasets.mnist."""

CONNECT_SECONDS = 10.0
DOWNLOAD_SECONDS = 120.0


def cache_folder() -> Path:
    """Where tf_keras.utils.get_file keeps data sets."""
    return Path.home() / ".keras" / "datasets"


def read_or_download(folder: Path, url: str = URL, sha256: str = SHA256) -> Digits:
    """Returns Keras's MNIST, from the cache where it is there and whole, else downloaded into it.

    Each worker of a machine may download at once: each writes a file of its own and renames it
    into place when its hash is right, so no one ever reads half a file. (Keras's own get_file
    writes in place and has no time limit.)

    Raises:
        DataError: it is not there and cannot be downloaded.
    """
    path = folder / NPZ
    if path.exists() and _sha256(path) == sha256:
        return read_npz(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _download(url, sha256, path)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"no MNIST in {folder}, and {url} cannot be downloaded ({reason})"
        ) from error
    return read_npz(path)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _download(url: str, sha256: str, path: Path) -> None:
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, _connect(url) as response:
            while block := response.read(1 << 16):
                file.write(block)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took more than {DOWNLOAD_SECONDS:.0f} s")
        if _sha256(Path(name)) != sha256:
            raise OSError("what came is not the file that Keras expects: its hash differs")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _connect(url: str) -> HTTPResponse:
    """Opens the address within CONNECT_SECONDS.

    In a thread, because a name server that does not answer is not covered by any socket timeout
    and can take half a minute.
    """
    outcome: list[HTTPResponse | OSError | HTTPException] = []

    def connect() -> None:
        try:
            outcome.append(urllib.request.urlopen(url, timeout=CONNECT_SECONDS))  # noqa: S310
        except (OSError, HTTPException) as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if not outcome:
        raise TimeoutError(f"no answer within {CONNECT_SECONDS:.0f} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
