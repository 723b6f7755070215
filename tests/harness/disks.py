"""Disks without space."""

import contextlib
from pathlib import Path


def fill(disk: Path) -> None:
    """Write a file `rest` until nothing more fits."""
    with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
        while rest.write(b"\0" * 4096):
            pass
