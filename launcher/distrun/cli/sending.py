"""How far the files for other hosts have come: a bar on a terminal, else one line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from distrun.cli import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Column

    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest

_WORTH_SHOWING = 1.0
"""Seconds; what is over sooner need not be looked at."""


class SendingBar:
    """Shown on stderr from a second on until the end is reached, or it is closed."""

    def __init__(self) -> None:
        self._draws = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._began: float | None = None
        self._bar: tuple[Progress, TaskID] | None = None
        self._has_said = False

    @property
    def is_shown(self) -> bool:
        return self._bar is not None

    def update(self, what: str, done: int, total: int) -> None:
        """`what` goes on, and has come so far, in bytes."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        if done >= total:
            self.close()
        elif now - self._began >= _WORTH_SHOWING:
            self._show(what, done, total)

    def _show(self, what: str, done: int, total: int) -> None:
        if not self._draws:
            if not self._has_said:
                console.say(f"{what}, {console.size(total)}")
            self._has_said = True
            return
        if self._bar is None:
            bar = _progress()
            self._bar = bar, bar.add_task(what, total=total, completed=done)
            bar.start()
        bar, task = self._bar
        bar.update(task, description=what, completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Take it away; a later :meth:`update` shows it again."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("distrun: {task.description}", markup=False, table_column=_unbroken()),
        BarColumn(bar_width=None),
        DownloadColumn(table_column=_unbroken()),
        TransferSpeedColumn(table_column=_unbroken()),
        TimeRemainingColumn(table_column=_unbroken()),
        console=Console(stderr=True, no_color=not console.uses_colour(sys.stderr) or None),
        auto_refresh=False,  # no thread: what happens here happens in one
        transient=True,
        expand=True,
    )


def _unbroken() -> Column:
    """A part that stays on its line: where there is little room, the bar itself is short."""
    from rich.table import Column

    return Column(no_wrap=True)


def read_files(spec: Spec) -> Manifest | None:
    """What other hosts are to be sent, with all that identifies it; None where that is nothing.

    Raises:
        InvalidSpecError: it is too much, or cannot be read.
    """
    if not spec.sends_files:
        return None
    from distrun.jobstore import JobStore
    from distrun.sync.files import survey

    found = survey(spec, [str(JobStore.default().jobs)])
    total, done = found.size, 0
    with contextlib.closing(SendingBar()) as bar:

        def on_read(count: int) -> None:
            nonlocal done
            done += count
            bar.update("reading the files for other hosts", done, total)

        return found.manifest(on_read)
