"""Processes that do not die: the kernel has frozen their cgroup, as one in state D has to wait.

Only a freezer of cgroup v1 does that: with v2, SIGKILL ends frozen processes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.requirements import reason
from harness.waiting import wait_until

_MOUNT = Path("/sys/fs/cgroup/freezer")
Freeze = Callable[..., None]
"""Freezes processes, by their ids, until the test ends."""


def _why_not() -> str | None:
    try:
        folder = tempfile.mkdtemp(prefix="distrun-", dir=_MOUNT)
    except OSError:
        return reason("no freezer cgroup (v1) can be made", "run the tests as root, on cgroup v1")
    Path(folder).rmdir()
    return None


@contextlib.contextmanager
def freezer() -> Iterator[Freeze]:
    """Give a function that freezes processes; they thaw at the end. Skips where that cannot be."""
    why_not = _why_not()
    if why_not is not None:
        pytest.skip(why_not)
    folder = Path(tempfile.mkdtemp(prefix="distrun-", dir=_MOUNT))
    state = folder / "freezer.state"

    def freeze(*pids: int) -> None:
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        state.write_text("FROZEN")
        wait_until(lambda: state.read_text().strip() == "FROZEN", timeout=10)

    def is_removed() -> bool:
        with contextlib.suppress(OSError):  # a process in it has yet to die
            folder.rmdir()
        return not folder.exists()

    try:
        yield freeze
    finally:
        state.write_text("THAWED")
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (_MOUNT / "cgroup.procs").write_text(pid)
        wait_until(is_removed, timeout=30)
