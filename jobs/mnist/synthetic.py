"""Digits that the job draws itself: the same on every machine, for when MNIST cannot be had."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from archive import read_npz
from digits import CLASSES, SIDE, Bytes, DataError, Digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Floats: TypeAlias = npt.NDArray[np.float32]
_Stroke: TypeAlias = tuple[tuple[float, float], ...]
"""Points of a smooth curve: x to the right, y downwards, both from 0 to 1."""

TRAINING = 60_000
TEST = 10_000
VARIANTS = 60
"""Drawings of each digit. Every image is a distorted drawing."""

_VERSION = 1
"""Part of the cache's file name: raise it with every change to what is drawn."""
_SEED = 20_260
_CANVAS = 56
"""Pixels on a side of a drawing."""
_CHUNK = 500
"""Images that are computed at once: few enough for the processor's cache."""
_KNOTS = 4
"""The elastic displacement is random at _KNOTS x _KNOTS points and interpolated between them."""
_CURVE_POINTS = 16
"""Dots between two points of a stroke: so close together that the pen's width joins them."""
_LOCK_SECONDS = 30.0


def draw(training: int, test: int, variants: int = VARIANTS) -> Digits:
    """Draws digits; the same arguments always give the same images."""
    rng = np.random.default_rng(_SEED)
    drawings = _drawings(variants, rng)
    images, labels = _images(training + test, drawings, rng)
    return _synthetic(images[:training], labels[:training], images[training:], labels[training:])


def load(
    training: int = TRAINING,
    test: int = TEST,
    variants: int = VARIANTS,
    draw_digits: Callable[[int, int, int], Digits] = draw,
) -> Digits:
    """Returns drawn digits, from the user's cache if it has them.

    The cache only saves time: if it cannot be read or written, the digits are drawn again.

    Args:
        training: how many training images.
        test: how many test images.
        variants: drawings of each digit.
        draw_digits: draws them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distrun"
    path = cache / f"synthetic-digits-{_VERSION}.npz"
    with suppress(DataError):
        return _read(path, training, test)
    # The first of several workers on a machine draws. The others wait for its file.
    with _lock(path):
        with suppress(DataError):
            return _read(path, training, test)
        digits = draw_digits(training, test, variants)
        with suppress(OSError):
            _write(path, digits)
        return digits


def _synthetic(
    train_images: Bytes, train_labels: Bytes, test_images: Bytes, test_labels: Bytes
) -> Digits:
    return Digits(
        source="synthetic digits",
        are_synthetic=True,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


# The drawings ------------------------------------------------------------------------------------

# fmt: off
_STYLES: tuple[tuple[tuple[_Stroke, ...], ...], ...] = (
    (  # 0
        (
            ((0.5, 0.1), (0.25, 0.3), (0.24, 0.68), (0.5, 0.9),
             (0.76, 0.68), (0.75, 0.3), (0.5, 0.1)),
        ),
        (
            ((0.6, 0.1), (0.3, 0.25), (0.22, 0.7), (0.45, 0.9),
             (0.75, 0.6), (0.72, 0.2), (0.52, 0.12)),
        ),
    ),
    (  # 1
        (((0.5, 0.1), (0.5, 0.5), (0.5, 0.9)),),
        (((0.32, 0.3), (0.52, 0.1)), ((0.52, 0.1), (0.52, 0.9))),
        (((0.34, 0.28), (0.5, 0.1)), ((0.5, 0.1), (0.5, 0.9)), ((0.3, 0.9), (0.7, 0.9))),
    ),
    (  # 2
        (
            ((0.25, 0.3), (0.4, 0.12), (0.66, 0.15), (0.72, 0.36), (0.5, 0.62), (0.25, 0.88)),
            ((0.25, 0.88), (0.5, 0.87), (0.78, 0.88)),
        ),
        (
            ((0.27, 0.25), (0.5, 0.1), (0.72, 0.28), (0.55, 0.6), (0.3, 0.85),
             (0.24, 0.74), (0.42, 0.74), (0.6, 0.88), (0.8, 0.82)),
        ),
    ),
    (  # 3
        (
            ((0.26, 0.2), (0.5, 0.1), (0.7, 0.26), (0.45, 0.47)),
            ((0.45, 0.47), (0.74, 0.62), (0.62, 0.86), (0.4, 0.9), (0.24, 0.78)),
        ),
        (
            ((0.25, 0.12), (0.72, 0.12)),
            ((0.72, 0.12), (0.45, 0.42)),
            ((0.45, 0.42), (0.74, 0.6), (0.62, 0.86), (0.4, 0.9), (0.24, 0.8)),
        ),
    ),
    (  # 4
        (((0.6, 0.1), (0.22, 0.62)), ((0.22, 0.62), (0.82, 0.62)), ((0.62, 0.35), (0.6, 0.92))),
        (
            ((0.28, 0.12), (0.27, 0.35), (0.35, 0.5), (0.7, 0.48)),
            ((0.7, 0.12), (0.69, 0.5), (0.66, 0.92)),
        ),
    ),
    (  # 5
        (
            ((0.74, 0.12), (0.32, 0.12)),
            ((0.32, 0.12), (0.28, 0.45)),
            ((0.28, 0.45), (0.56, 0.4), (0.76, 0.62), (0.6, 0.87), (0.38, 0.9), (0.22, 0.8)),
        ),
        (
            ((0.72, 0.1), (0.38, 0.14), (0.34, 0.42), (0.64, 0.5),
             (0.68, 0.78), (0.45, 0.9), (0.24, 0.82)),
        ),
    ),
    (  # 6
        (
            ((0.66, 0.1), (0.38, 0.32), (0.25, 0.65), (0.42, 0.9),
             (0.7, 0.8), (0.68, 0.57), (0.45, 0.53), (0.28, 0.68)),
        ),
        (
            ((0.5, 0.08), (0.3, 0.4), (0.28, 0.75), (0.5, 0.9),
             (0.72, 0.74), (0.58, 0.56), (0.32, 0.66)),
        ),
    ),
    (  # 7
        (((0.22, 0.13), (0.78, 0.13)), ((0.78, 0.13), (0.56, 0.5), (0.42, 0.92))),
        (
            ((0.22, 0.13), (0.78, 0.13)),
            ((0.78, 0.13), (0.56, 0.5), (0.42, 0.92)),
            ((0.36, 0.52), (0.7, 0.5)),
        ),
    ),
    (  # 8
        (
            ((0.68, 0.2), (0.48, 0.1), (0.3, 0.24), (0.48, 0.46), (0.72, 0.68),
             (0.52, 0.9), (0.27, 0.72), (0.5, 0.47), (0.7, 0.25), (0.6, 0.12)),
        ),
        (
            ((0.5, 0.1), (0.32, 0.2), (0.36, 0.42), (0.5, 0.47),
             (0.66, 0.4), (0.68, 0.2), (0.5, 0.1)),
            ((0.5, 0.47), (0.26, 0.62), (0.34, 0.86), (0.66, 0.86), (0.74, 0.62), (0.5, 0.47)),
        ),
    ),
    (  # 9
        (
            ((0.7, 0.3), (0.52, 0.1), (0.3, 0.24), (0.36, 0.48),
             (0.6, 0.46), (0.7, 0.3), (0.68, 0.6), (0.6, 0.92)),
        ),
        (
            ((0.68, 0.2), (0.46, 0.1), (0.28, 0.28), (0.44, 0.5), (0.68, 0.36), (0.68, 0.2)),
            ((0.7, 0.2), (0.7, 0.6), (0.5, 0.9), (0.3, 0.82)),
        ),
    ),
)
# fmt: on
"""For each digit, the styles in which people write it."""


def _drawings(variants: int, rng: np.random.Generator) -> Bytes:
    """(digits, variants, canvas * canvas): each digit in all its styles, with an unsteady hand."""
    drawn = np.empty((CLASSES, variants, _CANVAS, _CANVAS), np.uint8)
    for digit, styles in enumerate(_STYLES):
        for variant in range(variants):
            drawn[digit, variant] = _draw_digit(
                styles[variant % len(styles)],
                jitter=0.04,
                width=rng.uniform(0.02, 0.058),
                rng=rng,
            )
    return drawn.reshape(CLASSES, variants, -1)


def _draw_digit(
    strokes: tuple[_Stroke, ...], *, jitter: float, width: float, rng: np.random.Generator
) -> Bytes:
    """Draws one digit; returns (canvas, canvas), 0 for the background.

    Args:
        strokes: from 0 to 1. The canvas shows -0.2 to 1.2, so that there is a margin.
        jitter: standard deviation of each point's displacement, in the units of the strokes.
        width: half the pen's width, in the units of the strokes.
        rng: moves the points.
    """
    axis = np.linspace(-0.2, 1.2, _CANVAS, dtype=np.float32)
    pixels = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    curves = []
    for stroke in strokes:
        points = np.array(stroke, np.float32)
        points += rng.normal(0, jitter, points.shape).astype(np.float32)
        curves.append(_smooth(points))
    pen = np.concatenate(curves)
    # |a - b|^2 = |a|^2 - 2ab + |b|^2: one matrix product gives all distances.
    squares = (pixels**2).sum(axis=1)[:, None] - 2 * pixels @ pen.T + (pen**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares.min(axis=1), 0))
    ink: _Floats = np.clip((width + 0.03 - distance) / 0.04, 0, 1)
    return (ink * 255).astype(np.uint8).reshape(_CANVAS, _CANVAS)


def _smooth(points: _Floats) -> _Floats:
    """A Catmull-Rom curve through the points: (k, 2) to (more, 2)."""
    before = np.concatenate([points[:1], points[:-2]])
    start, end = points[:-1], points[1:]
    after = np.concatenate([points[2:], points[-1:]])
    t = np.linspace(0, 1, _CURVE_POINTS, endpoint=False, dtype=np.float32)[None, :, None]
    before, start, end, after = (part[:, None, :] for part in (before, start, end, after))
    curve = 0.5 * (
        2 * start
        + (end - before) * t
        + (2 * before - 5 * start + 4 * end - after) * t**2
        + (3 * start - before - 3 * end + after) * t**3
    )
    return np.concatenate([curve.reshape(-1, 2), points[-1:]]).astype(np.float32)


# The images, each a distorted drawing ------------------------------------------------------------


def _images(count: int, drawings: Bytes, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    labels = rng.integers(0, CLASSES, count, dtype=np.uint8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    basis = _displacement_basis()
    for start in range(0, count, _CHUNK):
        chunk = labels[start : start + _CHUNK]
        images[start : start + _CHUNK] = _distort(chunk, drawings, basis, rng)
    return images, labels


def _distort(labels: Bytes, drawings: Bytes, basis: _Floats, rng: np.random.Generator) -> Bytes:
    """One image for each label: a drawing, moved, turned, sheared, stretched, bent, and noisy."""
    count, variants = len(labels), drawings.shape[1]
    turn = rng.normal(0, 0.24, count)
    shear = rng.normal(0, 0.18, count)
    stretch_x = rng.uniform(0.85, 1.3, count)
    stretch_y = rng.uniform(0.85, 1.25, count)
    # Rows of coefficients of the basis: constant, x, y, then the elastic knots. They map each
    # pixel of the image to a place in the drawing.
    across = rng.normal(0, 0.038, (count, len(basis)))
    down = rng.normal(0, 0.038, (count, len(basis)))
    across[:, 0] = 0.5 + rng.normal(0, 0.045, count)
    down[:, 0] = 0.5 + rng.normal(0, 0.045, count)
    across[:, 1] = np.cos(turn) * stretch_x
    across[:, 2] = (shear - np.sin(turn)) * stretch_x
    down[:, 1] = np.sin(turn) * stretch_y
    down[:, 2] = np.cos(turn) * stretch_y
    column, row = (_to_canvas(place.astype(np.float32) @ basis) for place in (across, down))
    drawing = labels.astype(np.intp) * variants + rng.integers(0, variants, count)
    row *= _CANVAS
    row += column
    row += drawing[:, None] * _CANVAS**2
    ink = np.take(drawings, row, mode="clip").astype(np.float32)
    ink *= rng.uniform(0.52, 1.0, (count, 1)).astype(np.float32)
    noise = rng.integers(0, 256, ink.shape, dtype=np.uint8)
    ink += noise * rng.uniform(0, 0.38, (count, 1)).astype(np.float32)
    np.minimum(ink, 255, out=ink)
    return ink.astype(np.uint8).reshape(count, SIDE, SIDE)


def _to_canvas(place: _Floats) -> npt.NDArray[np.intp]:
    """Pixels of the canvas, which shows -0.2 to 1.2. Places outside become places at its edge."""
    place += 0.2
    place *= _CANVAS / 1.4
    np.clip(place, 0, _CANVAS - 1, out=place)
    return place.astype(np.intp)


def _displacement_basis() -> _Floats:
    """(3 + knots**2, pixels): how much each coefficient moves the place of each pixel."""
    axis = np.linspace(-0.6, 0.6, SIDE, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    at = np.linspace(0, _KNOTS - 1, SIDE, dtype=np.float32)
    # Linear interpolation in one direction is a hat around each knot; in two, the product of hats.
    hat = np.maximum(0, 1 - np.abs(at[None, :] - np.arange(_KNOTS, dtype=np.float32)[:, None]))
    knots = np.einsum("ay,bx->abyx", hat, hat).reshape(_KNOTS**2, -1)
    plane = np.stack([np.ones(SIDE * SIDE, np.float32), x.ravel(), y.ravel()])
    return np.concatenate([plane, knots]).astype(np.float32)


# The cache ---------------------------------------------------------------------------------------


def _read(path: Path, training: int, test: int) -> Digits:
    digits = read_npz(path)
    if (len(digits.train_images), len(digits.test_images)) != (training, test):
        raise DataError(f"{path} holds another number of images")
    return _synthetic(
        digits.train_images, digits.train_labels, digits.test_images, digits.test_labels
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
    """Holds a lock file beside the path. Continues without it after 30 s: it only saves work."""
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
