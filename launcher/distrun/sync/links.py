"""Symbolic links in what is sent: what they lead to, by the names that it is sent under."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def place_of_target(
    path: bytes,
    base: bytes,
    roots: Iterable[tuple[bytes, bytes]],
    links: Container[bytes],
    sent: Container[bytes],
) -> bytes | None:
    """Where in what is sent a link leads to; None: to nothing of it.

    A link that leads nowhere does so on the host as well.

    Args:
        path: the link's; absolute, as are all.
        base: what becomes the copy's top.
        roots: what is sent, with all below; each with its path without links.
        links: the links found in it.
        sent: files and folders found in it.

    Raises:
        OSError: the link cannot be read.
    """
    target = os.readlink(path)
    by_name = os.path.normpath(os.path.join(os.path.dirname(path), target))
    is_by_name = not os.path.isabs(target) and is_inside(by_name, base)
    if not os.path.exists(path):
        return by_name if is_by_name else None
    if is_by_name and (by_name in links or by_name in sent) and _is_same(path, by_name):
        return by_name
    real = os.path.realpath(path)
    for root, real_root in roots:
        if is_inside(real, real_root):
            place = os.path.normpath(os.path.join(root, os.path.relpath(real, real_root)))
            # A root may itself be a link that is found, this one for instance.
            if place in sent and place not in links and not is_inside(place, path):
                return place
    return None


def _is_same(path: bytes, by_name: bytes) -> bool:
    """It need not be: `a/../b` is not `b`, where `a` is a link."""
    return os.path.exists(by_name) and os.path.samefile(path, by_name)


def is_inside(path: bytes, folder: bytes) -> bool:
    """Whether a path is that folder or below it, by their names alone."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
