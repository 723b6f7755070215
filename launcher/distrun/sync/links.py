"""Symbolic links in what is sent: which of them are still right where it arrives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def kept_target(path: bytes, roots: Sequence[bytes]) -> bytes | None:
    """What a link is to say on the host; None where it leads out of the paths that are sent.

    Args:
        path: the link's; absolute.
        roots: what is sent: absolute paths.
    """
    target = os.readlink(path)
    folder = os.path.dirname(path)
    root = next((each for each in roots if is_inside(path, each)), None)
    if root is None:
        return None
    real = os.path.realpath(path)
    stays = not os.path.isabs(target) and is_inside(
        os.path.normpath(os.path.join(folder, target)), root
    )
    if stays and (is_inside(real, os.path.realpath(root)) or not os.path.exists(path)):
        return target
    for each in roots:
        beginning = os.path.realpath(each)
        if is_inside(real, beginning) and os.path.exists(path):
            place = os.path.normpath(os.path.join(each, os.path.relpath(real, beginning)))
            return os.path.relpath(place, folder)
    return None


def is_inside(path: bytes, folder: bytes) -> bool:
    """Whether a path is that folder or below it, by their names alone."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
