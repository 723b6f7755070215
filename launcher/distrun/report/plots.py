"""The plots of a report as SVG: a timeline of the tasks, and curves over the same time axis.

Their colours are variables of the page's style sheet, so that they follow the reader's light or
dark mode. They are drawn again every few seconds while a page is served.
"""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from distrun.frozen import Frozen, replace
from distrun.job.timing import Activity, Span
from distrun.report.series import Panel, Point, thinned
from distrun.spec.units import format_bytes
from distrun.words.formats import format_duration

_DASHES = ("", "7 3", "2 2", "8 2 2 2")
MARK = "◆"
"""Stands beside a task that differs from the others."""
COLOURS = 8
_HEIGHTS = {
    Activity.WAITING: (0.42, 0.16),
    Activity.STARTING: (0.15, 0.7),
    Activity.TRAINING: (0.15, 0.7),
    Activity.RUNNING: (0.15, 0.7),
    Activity.ENDING: (0.3, 0.4),
    Activity.SAVING: (0.15, 0.22),
    Activity.STALLED: (0.62, 0.3),
    Activity.LINK_LOST: (0.38, 0.24),
}
"""Where a bar is in its row, and how high: bars can be distinguished without colours."""
_NICE_SECONDS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000),
)
_MOST_POINTS = 20_000
"""Of all curves together, in one size."""
_MOST_POINTS_A_LINE, _FEWEST_POINTS_A_LINE = 600, 30
_ROW = 18
"""Pixels of height of a task's row."""
_CURVES_HEIGHT = 118
_TOP, _BOTTOM = 6, 20
"""Pixels above and below what is drawn."""
_MOST_Y_TICKS = 4
_LARGEST, _SMALLEST = 1e300, 1e-300
"""Of a value that is drawn."""


class Size(Frozen):
    """How wide plots are, in pixels; the margins beside the axes, and the highest number of ticks.

    `name` is the class of the style sheet.
    """

    name: str
    width: int
    left: int
    right: int
    ticks: int


SIZES = (Size("wide", 960, 78, 12, 8), Size("narrow", 360, 64, 8, 4))


class TimeAxis(Frozen):
    """The time that the plots show: Unix seconds; or steps, if `counts` says so."""

    start: float
    end: float
    counts: bool = False

    def after(self, at: float) -> float:
        return min(max(at, self.start), self.end) - self.start

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Plot(Frozen, kw_only=True):
    title: str
    images: dict[str, str]


def line_style(number: int) -> tuple[int, str]:
    """Return the colour and the dashes (SVG's `stroke-dasharray`) of a task's lines."""
    return number % COLOURS, _DASHES[number // COLOURS % len(_DASHES)]


def timeline(
    tasks: Mapping[str, bool], spans: Sequence[Span], marks: Sequence[float], axis: TimeAxis
) -> Plot:
    """Return what each task did from when to when.

    Args:
        tasks: one row each, from the top; whether it is marked, as one that differs.
        spans: of these tasks.
        marks: the times of restarts.
        axis: the time that is shown.
    """
    rows = {task: number for number, task in enumerate(tasks)}
    labels = [f"{MARK} {task}" if is_marked else task for task, is_marked in tasks.items()]
    least = axis.seconds / SIZES[0].width / 2
    bars = []
    for span in _joined(spans, axis.seconds / SIZES[0].width):
        start, end = axis.after(span.start), axis.after(span.end)
        offset, height = _HEIGHTS[span.activity]
        top, bottom = (rows[span.task] + offset) * _ROW, (rows[span.task] + offset + height) * _ROW
        bars.append((span, start, max(end, start + least), top, bottom))

    def draw(canvas: _Canvas) -> None:
        for row, label in enumerate(labels):
            longest = canvas.size.left // 6
            shown = label if len(label) <= longest else f"{label[: longest - 1]}…"
            canvas.label((row + 0.5) * _ROW, shown)
        for span, start, end, top, bottom in bars:
            left, right = canvas.x(start), canvas.x(end)
            path = f"M{left:.2f} {top + _TOP:.2f}H{right:.2f}V{bottom + _TOP:.2f}H{left:.2f}Z"
            style = f'fill="var(--{span.activity.name.lower()})"'
            attempt = f", attempt {span.attempt}" if span.attempt else ""
            lasted = format_duration(span.end - span.start)
            text = f"{span.task} {span.activity.value} for {lasted}{attempt} on {span.host}"
            canvas.data("span", text, path, style)

    return _plot("Tasks", draw, marks, axis, len(tasks) * _ROW)


def curves(
    panel: Panel, numbers: Mapping[str, int], marks: Sequence[float], axis: TimeAxis, lines: int
) -> Plot:
    """Return a panel's curves.

    Args:
        panel: what to draw.
        numbers: of the tasks that are drawn: the number decides on the line's colour and dashes.
        marks: the times of restarts.
        axis: the time that is shown.
        lines: how many there are in all panels.
    """
    share = _MOST_POINTS // max(1, lines)
    most = min(max(share, _FEWEST_POINTS_A_LINE), _MOST_POINTS_A_LINE)
    shown = {task: thinned(panel.curves.get(task, ()), most) for task in numbers}
    values = [value for points in shown.values() for _, value in points if not math.isnan(value)]
    low, high = _range(values, is_metric=not panel.unit)

    def draw(canvas: _Canvas) -> None:
        for value in _value_ticks(low, high):
            is_size = panel.unit == "bytes"
            text = format_bytes(max(0, round(value))) if is_size else _number(value)
            canvas.label(canvas.y(value, low, high) - _TOP, text, has_line=True)
        fewer = max(most * canvas.size.width // SIZES[0].width, _FEWEST_POINTS_A_LINE)
        for task, points in shown.items():
            if not points:
                continue
            path, is_gap = [], True
            for at, value in _with_dashes(thinned(points, fewer), axis.seconds / 200):
                if not math.isnan(value):
                    x, y = canvas.x(axis.after(at)), canvas.y(value, low, high)
                    path.append(f"{'M' if is_gap else 'L'}{x:.2f} {y:.2f}")
                is_gap = math.isnan(value)
            colour, dashes = line_style(numbers[task])
            style = f'fill="none" stroke="var(--line-{colour})" stroke-width="1.4"'
            style += f' stroke-dasharray="{dashes}"' if dashes else ""
            canvas.data(f'task" data-task="{numbers[task]}', task, "".join(path), style)

    return _plot(panel.title, draw, marks, axis, _CURVES_HEIGHT)


class _Canvas:
    """A plot in one size, while it is drawn."""

    def __init__(self, size: Size, axis: TimeAxis, height: int) -> None:
        self.size = size
        self._seconds, self._height = axis.seconds, height
        self._counts = axis.counts
        self._labels: list[str] = []
        self._data: list[str] = []

    def x(self, seconds: float) -> float:
        width = self.size.width - self.size.left - self.size.right
        return self.size.left + seconds / self._seconds * width

    def y(self, value: float, low: float, high: float) -> float:
        share = (min(max(value, -_LARGEST), _LARGEST) - low) / (high - low)
        return _TOP + (1 - share) * self._height

    def label(self, down: float, text: str, *, has_line: bool = False) -> None:
        y, left = down + _TOP, self.size.left
        right = self.size.width - self.size.right
        line = f'<path class="grid" d="M{left} {y:.2f}H{right}"/>' if has_line else ""
        text = html.escape(text)
        self._labels.append(
            f'{line}<text x="{left - 6}" y="{y + 3:.2f}" text-anchor="end">{text}</text>'
        )

    def data(self, kind: str, title: str, path: str, style: str) -> None:
        """Draw a path that the page's script zooms, with a tooltip."""
        title = html.escape(title)
        self._data.append(
            f'<g class="data {kind}"><title>{title}</title><path d="{path}" {style}/></g>'
        )

    def as_svg(self, title: str) -> str:
        size, bottom = self.size, self._height + _TOP
        right = size.width - size.right
        text = _number if self._counts else _short_duration
        ticks = _ticks(self._seconds, size.ticks)
        times = [
            f'<path class="grid" d="M{self.x(at):.2f} {_TOP}V{bottom}"/>'
            f'<text x="{self.x(at):.2f}" y="{bottom + 14}" text-anchor="middle">'
            f"{text(at)}</text>"
            for at in (_value_ticks(0.0, self._seconds) if self._counts else ticks)
        ]
        clip = f"{size.name}-{re.sub('[^a-z0-9]', '', title.lower())}"
        return (
            f'<svg class="plot {size.name}" viewBox="0 0 {size.width} {bottom + _BOTTOM}" '
            f'role="img" aria-label="{html.escape(title)}" data-left="{size.left}" '
            f'data-right="{right}" data-ticks="{size.ticks}">'
            f'<clipPath id="{clip}"><rect x="{size.left}" y="{_TOP}" '
            f'width="{right - size.left}" height="{self._height}"/></clipPath>'
            f'<g class="times">{"".join(times)}</g><g>{"".join(self._labels)}</g>'
            f'<path class="grid" d="M{size.left} {_TOP}H{right}V{bottom}H{size.left}Z"/>'
            f'<g clip-path="url(#{clip})">{"".join(self._data)}</g></svg>'
        )


def _plot(
    title: str, draw: Callable[[_Canvas], None], marks: Sequence[float], axis: TimeAxis, height: int
) -> Plot:
    images = {}
    for size in SIZES:
        canvas = _Canvas(size, axis, height)
        draw(canvas)
        for at in marks:
            path = f"M{canvas.x(axis.after(at)):.2f} {_TOP}V{_TOP + height}"
            canvas.data("mark", "restart", path, 'stroke="var(--mark)" stroke-dasharray="3 2"')
        images[size.name] = canvas.as_svg(title)
    return Plot(title=title, images=images)


def _ticks(seconds: float, most: int) -> Iterator[float]:
    step = next((each for each in _NICE_SECONDS if seconds / each <= most), seconds)
    return itertools.takewhile(lambda at: at <= seconds, (n * step for n in itertools.count()))


def _short_duration(seconds: float) -> str:
    """Return `0`, `0.5 s`, `30 s`, `2 m`, `1 h 30 m`, `3 d`."""
    if seconds < 60:
        return f"{seconds:g} s" if seconds else "0"
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(round(seconds), size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts[:2])


def _joined(spans: Sequence[Span], least: float) -> list[Span]:
    """Return them with those joined that follow each other more closely than can be seen."""
    joined: list[Span] = []
    last: dict[tuple[str, Activity], int] = {}
    for span in sorted(spans, key=lambda each: (list(Activity).index(each.activity), each.start)):
        key = (span.task, span.activity)
        before = joined[last[key]] if key in last else None
        is_short = span.end - span.start < least
        if before is not None and is_short and span.start - before.end < least:
            joined[last[key]] = replace(span, start=before.start, end=max(before.end, span.end))
        else:
            last[key] = len(joined)
            joined.append(span)
    return joined


def _with_dashes(points: Sequence[Point], length: float) -> list[Point]:
    """Return them with a short line in place of each point that has no neighbour."""
    shown: list[Point] = []
    for number, (at, value) in enumerate(points):
        around = (*points[max(0, number - 1) : number], *points[number + 1 : number + 2])
        is_alone = all(math.isnan(each) for _, each in around)
        shown += [(at, value), (at + length, value)] if is_alone else [(at, value)]
    return shown


def _range(values: Sequence[float], *, is_metric: bool) -> tuple[float, float]:
    """Return the lowest and the highest value of an axis: that of a metric need not show 0."""
    shown = [min(max(value, -_LARGEST), _LARGEST) for value in values]
    low, high = min(shown, default=0.0) if is_metric else 0.0, max(shown, default=1.0)
    space = max((high - low) * 0.06, _SMALLEST) if high > low else max(abs(high) * 0.1, 1e-9)
    return (low - space if is_metric else low), high + space


def _value_ticks(low: float, high: float) -> Iterator[float]:
    least = (high - low) / _MOST_Y_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power >= least)
    first = math.ceil(low / step)
    return (number * step for number in range(first, math.floor(high / step) + 1))


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
