"""Files fetched into a cache, each checked by its hash, so that nobody reads half of one."""

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
    """The file cannot be had: the text says from where and why."""


def fetch(url: str, sha256: str, path: Path) -> None:
    """Sees to it that the file is there and whole: from the cache, else downloaded into it.

    Each worker of a machine may download at once: each writes a file of its own and renames it
    into place when its hash is right. (Keras's own get_file writes in place and has no time
    limit.)

    Raises:
        DownloadError: it is not there and cannot be downloaded.
    """
    if path.exists() and digest(path) == sha256:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, sha256, path)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} cannot be downloaded ({reason})") from error


def digest(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits; empty where it cannot be read."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    except OSError:
        return ""
    return found.hexdigest()


def _download(url: str, sha256: str, path: Path) -> None:
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, _connect(url) as response:
            while block := response.read(1 << 16):
                file.write(block)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took more than {DOWNLOAD_SECONDS:.0f} s")
        if digest(Path(name)) != sha256:
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
