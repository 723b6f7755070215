"""A progress bar for the files that other hosts are sent."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from distrun.cli import console
from distrun.spec.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest


class TransferBar:
    """A bar on a terminal's stderr; elsewhere one line of text.

    It disappears when the transfer is complete.

    Args:
        delay: seconds before the bar appears: a shorter transfer shows none.
    """

    def __init__(self, delay: float = 1.0) -> None:
        self._delay = delay
        self._is_terminal = console.can_redraw(sys.stderr)
        self._started: float | None = None
        self._bar: tuple[Progress, TaskID] | None = None
        self._has_printed = False

    @property
    def is_shown(self) -> bool:
        return self._bar is not None

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are complete. `what` describes the transfer."""
        now = time.monotonic()
        if self._started is None:
            self._started = now
        if done >= total:
            self.close()
        elif now - self._started >= self._delay:
            self._show(what, done, total)

    def _show(self, what: str, done: int, total: int) -> None:
        if not self._is_terminal:
            if not self._has_printed:
                console.print_message(f"{what}, {format_bytes(total)}")
            self._has_printed = True
            return
        if self._bar is None:
            bar = _progress()
            self._bar = bar, bar.add_task(what, total=total, completed=done)
            bar.start()
        bar, task = self._bar
        bar.update(task, description=what, completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Remove the bar. A later :meth:`update` shows it again."""
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
    from rich.table import Column

    unwrapped = Column(no_wrap=True)  # on a narrow terminal only the bar becomes shorter
    return Progress(
        TextColumn("distrun: {task.description}", markup=False, table_column=unwrapped),
        BarColumn(bar_width=None),
        DownloadColumn(table_column=unwrapped),
        TransferSpeedColumn(table_column=unwrapped),
        TimeRemainingColumn(table_column=unwrapped),
        console=Console(stderr=True, no_color=not console.uses_colour(sys.stderr) or None),
        auto_refresh=False,  # rich would start a thread for it
        transient=True,
        expand=True,
    )


def read_files(spec: Spec) -> Manifest | None:
    """Read and hash the files for other hosts; None if the job sends none.

    Raises:
        InvalidSpecError: the files are too large, or cannot be read.
    """
    if not spec.sends_files:
        return None
    from distrun.job.folder import JobStore
    from distrun.sync.file_selection import select_files

    found = select_files(spec, [str(JobStore.default().jobs)])
    for failure in found.failures:
        console.print_message(failure)
    total, done = found.size, 0
    with contextlib.closing(TransferBar()) as bar:

        def on_read(count: int) -> None:
            nonlocal done
            done += count
            bar.update("reading the files for other hosts", done, total)

        return found.manifest(on_read)
