"""The plots of a report as SVG: a timeline of the tasks, and curves over the same time axis.

matplotlib draws them. Their colours are variables of the page's style sheet, so that they follow
the reader's light or dark mode.
"""

from __future__ import annotations

import contextlib
import functools
import html
import io
import itertools
import logging
import math
import os
import re
import warnings
from typing import TYPE_CHECKING, Any

from distrun.cli.text_format import format_duration
from distrun.frozen import Frozen
from distrun.report.series import thinned
from distrun.spec.units import format_bytes
from distrun.timeline import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from distrun.report.series import Panel, Point
    from distrun.timeline import Span

_COLOURS = {
    "#010000": "ink",
    "#020000": "muted",
    "#030000": "grid",
    "#040000": "mark",
    **{f"#05{number:02x}00": f"line-{number}" for number in range(8)},
    **{f"#06{number:02x}00": activity.name.lower() for number, activity in enumerate(Activity)},
}
"""What matplotlib draws with, and the names of the style sheet's variables."""
_HEX = {name: colour for colour, name in _COLOURS.items()}
_DASHES = ((0, ()), (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
MARK = "◆"
"""Stands beside a task that differs from the others."""
COLOURS = 8
STYLES = COLOURS * len(_DASHES)
"""So many tasks have lines that differ."""
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
"""Where a bar is in its row, and how high: bars can be told apart without colours."""
_NICE_SECONDS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000),
)
_MOST_POINTS = 20_000
"""Of all curves together, in one size."""
_MOST_POINTS_A_LINE, _FEWEST_POINTS_A_LINE = 600, 30
_ROW = 18
"""Points of height of a task's row."""


class Size(Frozen):
    """How wide plots are, in points; the margins beside the axes, and the highest number of ticks.

    `name` is the class of the style sheet.
    """

    name: str
    width: int
    left: int
    right: int
    ticks: int


SIZES = (Size("wide", 960, 78, 12, 8), Size("narrow", 360, 64, 8, 4))


class TimeAxis(Frozen):
    """The time that the plots show: Unix seconds."""

    start: float
    end: float

    def after(self, at: float) -> float:
        """Return the seconds since the start, within the axis."""
        return min(max(at, self.start), self.end) - self.start

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Plot(Frozen, kw_only=True):
    """A plot in all sizes: SVG by the size's name."""

    title: str
    images: dict[str, str]


def line_style(number: int) -> tuple[int, int]:
    """Return the colour and the dashes of a task's lines."""
    return number % COLOURS, number // COLOURS % len(_DASHES)


def dashes_as_svg(number: int) -> str:
    """Return the dashes of a task's lines as SVG's `stroke-dasharray`."""
    return " ".join(map(str, _DASHES[line_style(number)[1]][1]))


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
    shown = _joined(spans, axis.seconds / SIZES[0].width)
    draw = functools.partial(_draw_timeline, tasks, shown, axis)
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
    draw = functools.partial(_draw_curves, panel, numbers, axis, lines)
    return _plot(panel.title, draw, marks, axis, 118)


def _plot(
    title: str,
    draw: Callable[[Axes, Size], dict[str, str]],
    marks: Sequence[float],
    axis: TimeAxis,
    height: int,
) -> Plot:
    images = {}
    with _settings(title):
        for size in SIZES:
            figure, axes = _make_axes(size, axis, height)
            texts = draw(axes, size)
            for at in marks:
                transform = axes.get_xaxis_transform()
                (line,) = axes.plot([axis.after(at)] * 2, [0, 1], transform=transform)
                line.set(color=_HEX["mark"], linewidth=1, linestyle=(0, (3, 2)), gid="mark")
            images[size.name] = _as_svg(figure, size, title, texts)
    return Plot(title=title, images=images)


@contextlib.contextmanager
def _settings(title: str) -> Iterator[None]:
    """Draw without the user's own settings of matplotlib, and without its messages."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    os.environ.pop("MPLBACKEND", None)  # one that is not installed fails the import
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's library reserves memory for each
    bytes(128 << 20)  # where there is less, that library exits
    import matplotlib as mpl

    settings: dict[Any, Any] = {**mpl.rcParamsDefault, "svg.fonttype": "none"}
    settings.update({"svg.hashsalt": title, "path.simplify": False, "backend": "svg"})
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that a font lacks a character
        yield


def _make_axes(size: Size, axis: TimeAxis, height: int) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    top, bottom = 6, 20
    whole = height + top + bottom
    figure = Figure(figsize=(size.width / 72, whole / 72))
    figure.patch.set_visible(False)
    wide = (size.width - size.left - size.right) / size.width
    axes = figure.add_axes((size.left / size.width, bottom / whole, wide, height / whole))
    axes.patch.set_visible(False)
    axes.set_xlim(0, axis.seconds)
    axes.set_xticks(list(_ticks(axis.seconds, size.ticks)))
    axes.xaxis.set_major_formatter(lambda value, _: _short_duration(value))
    axes.tick_params(length=3, labelsize=9, color=_HEX["muted"], labelcolor=_HEX["muted"])
    for spine in axes.spines.values():
        spine.set(color=_HEX["grid"], linewidth=0.8)
    axes.grid(color=_HEX["grid"], linewidth=0.5)
    axes.set_axisbelow(True)
    return figure, axes


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


def _draw_timeline(
    tasks: Mapping[str, bool], spans: Sequence[Span], axis: TimeAxis, axes: Axes, size: Size
) -> dict[str, str]:
    from matplotlib.patches import Rectangle

    rows = {task: number for number, task in enumerate(tasks)}
    axes.set_ylim(len(tasks), 0)
    axes.set_yticks([row + 0.5 for row in rows.values()])
    labels = [f"{MARK} {task}" if is_marked else task for task, is_marked in tasks.items()]
    axes.set_yticklabels([_cut(label, size.left // 6) for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    least = axis.seconds / size.width / 2
    texts = {}
    for number, span in enumerate(spans):
        start, end = axis.after(span.start), axis.after(span.end)
        offset, height = _HEIGHTS[span.activity]
        corner = (start, rows[span.task] + offset)
        bar = Rectangle(corner, max(end - start, least), height, linewidth=0)
        bar.set(facecolor=_HEX[span.activity.name.lower()], gid=f"span-{number}")
        axes.add_patch(bar)
        texts[f"span-{number}"] = _span_text(span)
    return texts


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _span_text(span: Span) -> str:
    attempt = f", attempt {span.attempt}" if span.attempt else ""
    lasted = format_duration(span.end - span.start)
    return f"{span.task} {span.activity.value} for {lasted}{attempt} on {span.host}"


def _joined(spans: Sequence[Span], least: float) -> list[Span]:
    """Return them with those joined that follow each other more closely than can be seen."""
    joined: list[Span] = []
    last: dict[tuple[str, Activity], int] = {}
    for span in sorted(spans, key=lambda each: (list(Activity).index(each.activity), each.start)):
        key = (span.task, span.activity)
        before = joined[last[key]] if key in last else None
        is_short = span.end - span.start < least
        if before is not None and is_short and span.start - before.end < least:
            joined[last[key]] = span.__class__(
                task=span.task,
                activity=span.activity,
                start=before.start,
                end=max(before.end, span.end),
                attempt=span.attempt,
                host=span.host,
            )
        else:
            last[key] = len(joined)
            joined.append(span)
    return joined


def _draw_curves(
    panel: Panel, numbers: Mapping[str, int], axis: TimeAxis, lines: int, axes: Axes, size: Size
) -> dict[str, str]:
    share = _MOST_POINTS * size.width // SIZES[0].width // max(1, lines)
    most = min(max(share, _FEWEST_POINTS_A_LINE), _MOST_POINTS_A_LINE)
    texts = {}
    values: list[float] = []
    for task, number in numbers.items():
        shortest = axis.seconds / 200
        points = _with_dashes(thinned(panel.curves.get(task, ()), most), shortest)
        if not points:
            continue
        colour, dashes = line_style(number)
        times = [axis.after(at) for at, _ in points]
        (line,) = axes.plot(times, [value for _, value in points])
        line.set(color=_HEX[f"line-{colour}"], linestyle=_DASHES[dashes], linewidth=1.4)
        line.set_gid(f"task-{number}")
        texts[f"task-{number}"] = task
        values += [value for _, value in points if not math.isnan(value)]
    _set_range(axes, panel.unit, values)
    return texts


def _with_dashes(points: Sequence[Point], length: float) -> list[Point]:
    """Return them with a short line in place of each point that has no neighbour."""
    shown: list[Point] = []
    for number, (at, value) in enumerate(points):
        around = (*points[max(0, number - 1) : number], *points[number + 1 : number + 2])
        is_alone = all(math.isnan(each) for _, each in around)
        shown += [(at, value), (at + length, value)] if is_alone else [(at, value)]
    return shown


def _set_range(axes: Axes, unit: str, values: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = min(values, default=0.0), max(values, default=1.0)
    if unit:
        low = 0.0
    space = (high - low) * 0.06 or max(abs(high) * 0.1, 1e-9)
    axes.set_ylim(low if unit else low - space, high + space)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    text = _bytes if unit == "bytes" else _number
    axes.yaxis.set_major_formatter(lambda value, _: text(value))


def _bytes(value: float) -> str:
    return format_bytes(max(0, round(value)))


def _number(value: float) -> str:
    if abs(value) < 1e-12:
        return "0"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


def _as_svg(figure: Figure, size: Size, title: str, texts: dict[str, str]) -> str:
    """Return a figure as an element of a page."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    whole = re.search(r'viewBox="([^"]*)"', svg)
    box = whole[1] if whole is not None else ""
    name = html.escape(title, quote=True)
    start = (
        f'<svg class="plot {size.name}" viewBox="{box}" role="img" aria-label="{name}" '
        f'data-left="{size.left}" data-right="{size.width - size.right}" '
        f'data-ticks="{size.ticks}">'
    )
    svg = start + svg[svg.index(">") + 1 :]
    svg = re.sub(r"#0[1-6]\d\d00\b", lambda found: f"var(--{_COLOURS[found[0]]})", svg)
    svg = re.sub(r"(?<=\d)\.(\d\d)\d+(?=[^<>]*>)", r".\1", svg)  # not in texts
    svg = re.sub(r"; font-family: [^;\"]*", "", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    svg = re.sub(r'<g id="((?:span|task|mark)[-\d]*)">', functools.partial(_group, texts), svg)
    prefix = f"{size.name}-{re.sub('[^a-z0-9]', '', title.lower())}-"
    svg = re.sub(r' id="([^"]*)"', rf' id="{prefix}\1"', svg)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}", svg)


def _group(texts: dict[str, str], found: re.Match[str]) -> str:
    """Return the beginning of a group that the page's script finds, with its tooltip."""
    kind, _, number = found[1].partition("-")
    text = texts.get(found[1], "restart")
    task = f' data-task="{number}"' if kind == "task" else ""
    return f'<g class="data {kind}"{task}><title>{html.escape(text)}</title>'
