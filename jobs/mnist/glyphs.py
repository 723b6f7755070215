"""The ten digits as pen strokes, and how a pen draws them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Stroke: TypeAlias = tuple[tuple[float, float], ...]
"""Points that a smooth curve passes through: x to the right, y downwards, both in 0..1."""

STYLES: tuple[tuple[tuple[Stroke, ...], ...], ...] = (
    (  # 0
        (
            (
                (0.5, 0.1),
                (0.25, 0.3),
                (0.24, 0.68),
                (0.5, 0.9),
                (0.76, 0.68),
                (0.75, 0.3),
                (0.5, 0.1),
            ),
        ),
        (
            (
                (0.6, 0.1),
                (0.3, 0.25),
                (0.22, 0.7),
                (0.45, 0.9),
                (0.75, 0.6),
                (0.72, 0.2),
                (0.52, 0.12),
            ),
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
            (
                (0.27, 0.25),
                (0.5, 0.1),
                (0.72, 0.28),
                (0.55, 0.6),
                (0.3, 0.85),
                (0.24, 0.74),
                (0.42, 0.74),
                (0.6, 0.88),
                (0.8, 0.82),
            ),
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
            (
                (0.72, 0.1),
                (0.38, 0.14),
                (0.34, 0.42),
                (0.64, 0.5),
                (0.68, 0.78),
                (0.45, 0.9),
                (0.24, 0.82),
            ),
        ),
    ),
    (  # 6
        (
            (
                (0.66, 0.1),
                (0.38, 0.32),
                (0.25, 0.65),
                (0.42, 0.9),
                (0.7, 0.8),
                (0.68, 0.57),
                (0.45, 0.53),
                (0.28, 0.68),
            ),
        ),
        (
            (
                (0.5, 0.08),
                (0.3, 0.4),
                (0.28, 0.75),
                (0.5, 0.9),
                (0.72, 0.74),
                (0.58, 0.56),
                (0.32, 0.66),
            ),
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
            (
                (0.68, 0.2),
                (0.48, 0.1),
                (0.3, 0.24),
                (0.48, 0.46),
                (0.72, 0.68),
                (0.52, 0.9),
                (0.27, 0.72),
                (0.5, 0.47),
                (0.7, 0.25),
                (0.6, 0.12),
            ),
        ),
        (
            (
                (0.5, 0.1),
                (0.32, 0.2),
                (0.36, 0.42),
                (0.5, 0.47),
                (0.66, 0.4),
                (0.68, 0.2),
                (0.5, 0.1),
            ),
            ((0.5, 0.47), (0.26, 0.62), (0.34, 0.86), (0.66, 0.86), (0.74, 0.62), (0.5, 0.47)),
        ),
    ),
    (  # 9
        (
            (
                (0.7, 0.3),
                (0.52, 0.1),
                (0.3, 0.24),
                (0.36, 0.48),
                (0.6, 0.46),
                (0.7, 0.3),
                (0.68, 0.6),
                (0.6, 0.92),
            ),
        ),
        (
            ((0.68, 0.2), (0.46, 0.1), (0.28, 0.28), (0.44, 0.5), (0.68, 0.36), (0.68, 0.2)),
            ((0.7, 0.2), (0.7, 0.6), (0.5, 0.9), (0.3, 0.82)),
        ),
    ),
)
"""For each digit, the ways in which people write it."""

_CURVE_POINTS = 16
"""Dots between two points of a stroke; close enough together that a pen's width joins them."""


def draw(
    strokes: tuple[Stroke, ...], *, size: int, jitter: float, width: float, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Draws one digit.

    Args:
        strokes: what to draw, in 0..1; the canvas shows -0.2..1.2, so that there is a margin.
        size: pixels of a side.
        jitter: standard deviation of each point's displacement, in the strokes' units.
        width: half the pen's width, in the strokes' units.
        rng: moves the points.

    Returns:
        (size, size), 0 for background.
    """
    axis = np.linspace(-0.2, 1.2, size, dtype=np.float32)
    pixels = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    curves = []
    for stroke in strokes:
        points = np.array(stroke, np.float32)
        points += rng.normal(0, jitter, points.shape).astype(np.float32)
        curves.append(_smooth(points))
    pen = np.concatenate(curves)
    # |a - b|^2 = |a|^2 - 2ab + |b|^2: one product of matrices gives every distance.
    squares = (pixels**2).sum(axis=1)[:, None] - 2 * pixels @ pen.T + (pen**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares.min(axis=1), 0))
    ink: Floats = np.clip((width + 0.03 - distance) / 0.04, 0, 1)
    return (ink * 255).astype(np.uint8).reshape(size, size)


def _smooth(points: Floats) -> Floats:
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
