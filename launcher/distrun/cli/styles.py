"""Colours of states, readable on light and dark."""

from __future__ import annotations

from rich.text import Text

_STYLES = {
    "running": "green",
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "stopping": "yellow",
    "exited": "yellow",
    "stopped": "yellow",
}


def styled(state: str) -> Text:
    """A job's or task's state in its colour."""
    return Text(state, style=_STYLES.get(state, ""))
