"""How far the transfer of files is: those that other hosts are sent, or that come back."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from distrun.cli import console
from distrun.cli.terminal import Terminal
from distrun.spec.units import format_bytes
from distrun.words.formats import format_duration

if TYPE_CHECKING:
    from distrun.spec.model import Spec
    from distrun.sync.manifest import Manifest


class TransferBar:
    """Shows a transfer in the status line of a terminal; elsewhere, one line of text says it.

    It disappears when the transfer is complete.

    Args:
        terminal: whose status line it takes. Default: stderr's.
        delay: seconds before it appears: a shorter transfer shows nothing.
    """

    def __init__(self, terminal: Terminal | None = None, delay: float = 1.0) -> None:
        self._terminal = terminal or Terminal(sys.stderr.buffer, sys.stderr)
        self._delay = delay
        self._started: float | None = None
        self.text = ""
        """What is shown; empty: nothing."""
        self._has_printed = False

    def update(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are complete. `what` describes the transfer."""
        now = time.monotonic()
        self._started = started = now if self._started is None else self._started
        if done >= total:
            self.close()
        elif now - started >= self._delay and self._terminal.has_status_line:
            rate = done / max(now - started, 0.001)
            words = [what, f"{format_bytes(done)} of {format_bytes(total)}", f"{done / total:.0%}"]
            if done:
                left = format_duration((total - done) / rate)
                words += [f"{format_bytes(int(rate))}/s", f"{left} left"]
            self.text = "  ".join(words)
            self._terminal.show_status(self.text)
        elif now - started >= self._delay and not self._has_printed:
            self._has_printed = True
            console.print_message(f"{what}, {format_bytes(total)}")

    def close(self) -> None:
        if self.text:
            self.text = ""
            self._terminal.show_status("")


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
