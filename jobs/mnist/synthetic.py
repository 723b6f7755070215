"""Digits that the job draws itself: the same on every machine, for where there is no MNIST."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import glyphs
from archive import read_npz
from digits import CLASSES, SIDE, Bytes, DataError, Digits

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINING = 60_000
TEST = 10_000
_VERSION = 1
"""In the cache's name: raise it when anything changes what is drawn."""

_SEED = 20_260
_VARIANTS = 60
"""Drawings of each digit from which the images are warped."""
_CANVAS = 56
_CHUNK = 500
_KNOTS = 4
"""The elastic displacement is given at _KNOTS x _KNOTS points and interpolated between them."""
_LOCK_SECONDS = 30.0


def load() -> Digits:
    """Returns 60,000 + 10,000 drawn digits, from the user's cache where it has them.

    The cache only saves time: where it cannot be read or written, the digits are drawn anew.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distrun"
    path = cache / f"synthetic-digits-{_VERSION}.npz"
    with suppress(DataError):
        return _read(path)
    # Of several workers on a machine the first draws and the others wait for its file.
    with _lock(path):
        with suppress(DataError):
            return _read(path)
        digits = draw(TRAINING, TEST)
        with suppress(OSError):
            _write(path, digits)
        return digits


def draw(training: int, test: int) -> Digits:
    """Draws digits; the same numbers always give the same images."""
    rng = np.random.default_rng(_SEED)
    templates = _templates(rng)
    images, labels = _images(training + test, templates, rng)
    return Digits(
        source="synthetic digits",
        are_synthetic=True,
        train_images=images[:training],
        train_labels=labels[:training],
        test_images=images[training:],
        test_labels=labels[training:],
    )


def _templates(rng: np.random.Generator) -> Bytes:
    """(digits, variants, canvas * canvas): each digit in its styles, by unsteady hands."""
    drawn = np.empty((CLASSES, _VARIANTS, _CANVAS, _CANVAS), np.uint8)
    for digit, styles in enumerate(glyphs.STYLES):
        for variant in range(_VARIANTS):
            drawn[digit, variant] = glyphs.draw(
                styles[variant % len(styles)],
                size=_CANVAS,
                jitter=0.04,
                width=rng.uniform(0.02, 0.058),
                rng=rng,
            )
    return drawn.reshape(CLASSES, _VARIANTS, -1)


def _images(count: int, templates: Bytes, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    labels = rng.integers(0, CLASSES, count, dtype=np.uint8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    basis = _displacement_basis()
    for start in range(0, count, _CHUNK):  # in chunks, to stay within the processor's cache
        chunk = labels[start : start + _CHUNK]
        images[start : start + _CHUNK] = _warp(chunk, templates, basis, rng)
    return images, labels


def _warp(labels: Bytes, templates: Bytes, basis: glyphs.Floats, rng: np.random.Generator) -> Bytes:
    """One image for each label: a drawing, moved, turned, sheared, stretched, bent, and noisy."""
    count = len(labels)
    turn = rng.normal(0, 0.24, count)
    shear = rng.normal(0, 0.18, count)
    stretch_x = rng.uniform(0.85, 1.3, count)
    stretch_y = rng.uniform(0.85, 1.25, count)
    # Rows of coefficients of the basis: constant, x, y, then the elastic knots. They map a
    # pixel of the image to the place in the drawing that it shows.
    across = rng.normal(0, 0.038, (count, len(basis)))
    down = rng.normal(0, 0.038, (count, len(basis)))
    across[:, 0] = 0.5 + rng.normal(0, 0.045, count)
    down[:, 0] = 0.5 + rng.normal(0, 0.045, count)
    across[:, 1] = np.cos(turn) * stretch_x
    across[:, 2] = (shear - np.sin(turn)) * stretch_x
    down[:, 1] = np.sin(turn) * stretch_y
    down[:, 2] = np.cos(turn) * stretch_y
    column, row = (_to_canvas(place.astype(np.float32) @ basis) for place in (across, down))
    drawing = labels.astype(np.intp) * _VARIANTS + rng.integers(0, _VARIANTS, count)
    row *= _CANVAS
    row += column
    row += drawing[:, None] * _CANVAS**2
    ink = np.take(templates, row, mode="clip").astype(np.float32)
    ink *= rng.uniform(0.52, 1.0, (count, 1)).astype(np.float32)
    noise = rng.integers(0, 256, ink.shape, dtype=np.uint8)
    ink += noise * rng.uniform(0, 0.38, (count, 1)).astype(np.float32)
    np.minimum(ink, 255, out=ink)
    return ink.astype(np.uint8).reshape(count, SIDE, SIDE)


def _to_canvas(place: glyphs.Floats) -> npt.NDArray[np.intp]:
    """Pixels of the drawing's canvas, which shows -0.2..1.2; what lies outside is its margin."""
    place += 0.2
    place *= _CANVAS / 1.4
    np.clip(place, 0, _CANVAS - 1, out=place)
    return place.astype(np.intp)


def _displacement_basis() -> glyphs.Floats:
    """(3 + knots**2, pixels): what each coefficient of a warp does to each pixel's place."""
    axis = np.linspace(-0.6, 0.6, SIDE, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    at = np.linspace(0, _KNOTS - 1, SIDE, dtype=np.float32)
    # Linear interpolation in one direction is a hat around each knot; in two, their product.
    hat = np.maximum(0, 1 - np.abs(at[None, :] - np.arange(_KNOTS, dtype=np.float32)[:, None]))
    knots = np.einsum("ay,bx->abyx", hat, hat).reshape(_KNOTS**2, -1)
    plane = np.stack([np.ones(SIDE * SIDE, np.float32), x.ravel(), y.ravel()])
    return np.concatenate([plane, knots]).astype(np.float32)


def _read(path: Path) -> Digits:
    digits = read_npz(path)
    if len(digits.train_images) != TRAINING or len(digits.test_images) != TEST:
        raise DataError(f"{path} holds another number of images")
    return Digits(
        source="synthetic digits",
        are_synthetic=True,
        train_images=digits.train_images,
        train_labels=digits.train_labels,
        test_images=digits.test_images,
        test_labels=digits.test_labels,
    )


def _write(path: Path, digits: Digits) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(
                file,
                x_train=digits.train_images,
                y_train=digits.train_labels,
                x_test=digits.test_images,
                y_test=digits.test_labels,
            )
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock beside the path, or goes on without it: it only saves work, never protects."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
            else:
                break
        yield
    finally:
        os.close(descriptor)
