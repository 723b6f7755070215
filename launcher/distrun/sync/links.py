"""Symbolic links among the files to send: whether the target of a link is sent, too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def sent_target(
    path: bytes,
    base: bytes,
    roots: Iterable[tuple[bytes, bytes]],
    links: Container[bytes],
    sent: Container[bytes],
) -> bytes | None:
    """The path under which the target of a link is sent; None if it is not sent.

    A broken link stays broken on the host. All paths are absolute.

    Args:
        path: the link.
        base: the top of the copy.
        roots: the paths that are sent with everything below them, each with its real path.
        links: the links found below them.
        sent: the files and folders found below them.

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
            # A root may itself be a link, even this one.
            if place in sent and place not in links and not is_inside(place, path):
                return place
    return None


def _is_same(path: bytes, by_name: bytes) -> bool:
    """Whether a link leads to `by_name`. If `a` is a link, `a/../b` need not be `b`."""
    return os.path.exists(by_name) and os.path.samefile(path, by_name)


def is_inside(path: bytes, folder: bytes) -> bool:
    """Whether a path is that folder or below it. Compares names only."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
