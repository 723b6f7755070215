"""The plots of docs/results.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from report import TRIED

if TYPE_CHECKING:
    from pathlib import Path

mpl.rcParams["svg.hashsalt"] = "distrun"  # the same figures make the same file
_JOB, _TUTORIAL = "#1f77b4", "#ff7f0e"


def draw(figures: dict[str, Any], folder: Path) -> None:
    """Writes learning.svg, times.svg and steps.svg into the folder."""
    _learning(figures["strategies"], folder / "learning.svg")
    _times(figures["strategies"], folder / "times.svg")
    _steps(figures["steps"], folder / "steps.svg")


def _learning(strategies: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(2, len(strategies), figsize=(14, 5), sharex=True, sharey="row")
    for column, (name, sides) in enumerate(strategies.items()):
        for side, colour in (("job", _JOB), ("tutorial", _TUTORIAL)):
            epochs = range(1, len(sides[side]["epochs"]) + 1)
            for row, what in enumerate(("accuracy", "loss")):
                values = [epoch[what] for epoch in sides[side]["epochs"]]
                axes[row][column].plot(epochs, values, "o-", color=colour, label=side)
        axes[0][column].set_title(name, fontsize=9)
        axes[1][column].set_xlabel("epoch")
        axes[1][column].set_xticks(list(epochs))
    axes[0][0].set_ylabel("training accuracy")
    axes[1][0].set_ylabel("training loss")
    axes[0][0].legend(fontsize=8)
    _save(figure, path)


def _times(strategies: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 4))
    height = 0.38
    for place, (side, colour) in enumerate((("job", _JOB), ("tutorial", _TUTORIAL))):
        rows = [row + place * height for row in range(len(strategies))]
        axes.barh(
            rows, [sides[side]["total"] for sides in strategies.values()], height,
            color=colour, label=f"{side}, from start to exit",
        )  # fmt: skip
        firsts = [sides[side]["first_step"] or 0.0 for sides in strategies.values()]
        axes.barh(rows, firsts, height, color="white", alpha=0.45)
    axes.set_yticks([row + height / 2 for row in range(len(strategies))], list(strategies))
    axes.invert_yaxis()
    axes.set_xlabel("seconds (the pale part: to the first step)")
    axes.legend()
    _save(figure, path)


def _steps(steps: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 4))
    names = list(TRIED)
    axes.barh(names, [steps[name]["wall"] for name in names], color=_JOB)
    axes.axvline(steps["alone"]["wall"], color="black", linewidth=1, linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds a step, two workers (dashed: without any all-reduce)")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
