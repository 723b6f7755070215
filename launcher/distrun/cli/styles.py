"""Colours of states.

Of the 256 colours, some with a contrast of about 4:1 on black and on white alike: yellow cannot
be read on a light terminal, nor grey on many. Where there are only 16, they become green, red
and magenta.
"""

from __future__ import annotations

from rich.text import Text

_GOOD, _BAD, _PASSING = "color(28)", "color(161)", "color(163)"
_STYLES = {
    "ok": _GOOD,
    "running": _GOOD,
    "succeeded": _GOOD,
    "failed": _BAD,
    "lost": _BAD,
    "warning": _PASSING,
    "stopping": _PASSING,
    "restarting": _PASSING,
    "exited": _PASSING,
    "stopped": _PASSING,
}


def styled(state: str, more: str = "") -> Text:
    """The state of a job, task or check in its colour, with what else there is to say of it."""
    return Text(f"{state} {more}" if more else state, style=_STYLES.get(state, ""))
