"""Downloads files into a cache and checks their hashes, so that nobody reads a partial file."""

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

CONNECT_SECONDS = 10.0
DOWNLOAD_SECONDS = 120.0


class DownloadError(Exception):
    """The file cannot be downloaded: the message says from where and why."""


def fetch(url: str, sha256: str, path: Path, connect_seconds: float = CONNECT_SECONDS) -> None:
    """Downloads a file into the cache, unless it is there and undamaged.

    Several workers of a machine may download at once: each writes its own temporary file, and
    renames it when its hash is right. (Keras's get_file writes in place and has no time limit.)

    Raises:
        DownloadError: it is not there and cannot be downloaded.
    """
    if path.exists() and digest(path) == sha256:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, sha256, path, connect_seconds)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} cannot be downloaded ({reason})") from error


def digest(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits; empty if it cannot be read."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError:
        return ""
    return found.hexdigest()


def _download(url: str, sha256: str, path: Path, connect_seconds: float) -> None:
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, _connect(url, connect_seconds) as response:
            while block := response.read(1 << 16):
                file.write(block)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took more than {DOWNLOAD_SECONDS:.0f} s")
        if digest(Path(name)) != sha256:
            raise OSError("the downloaded file is not the one that Keras expects: its hash differs")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _connect(url: str, seconds: float) -> HTTPResponse:
    """Opens the address within a time limit.

    A thread does it, because no socket timeout covers a name server that does not answer, which can
    take half a minute.
    """
    outcome: list[HTTPResponse | OSError | HTTPException] = []

    def connect() -> None:
        try:
            outcome.append(urllib.request.urlopen(url, timeout=seconds))  # noqa: S310
        except (OSError, HTTPException) as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
