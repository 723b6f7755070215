"""The index of logs: real files, real inotify."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from distrun.agent.logs.task_logs import TaskLogs, index_of
from distrun.agent.loop import Loop
from distrun.agent.protocol import INDEX_RECORD

SECONDS = 30.0


class Logs:
    """Two logs whose growth is indexed, with an event loop."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / name) for name in ("worker-0.log", "worker-1.log")]
        self.updates = 0
        self.loop = Loop()
        no_link: Any = None
        self.logs = TaskLogs(str(folder), None, no_link, self.loop)
        self.logs.check_disk = self._on_update  # type: ignore[method-assign]
        for path in self.paths:
            self.logs.open(path)

    def _on_update(self) -> None:
        self.updates += 1

    def write(self, number: int) -> None:
        with Path(self.paths[number]).open("ab") as log:
            log.write(b"a line\n")

    def sizes(self, number: int) -> list[int]:
        block = Path(index_of(self.paths[number])).read_bytes()
        return [size for _, size in INDEX_RECORD.iter_unpack(block)]

    def wait(self) -> None:
        """Wait for the next update, as the agent does, and do it."""
        deadline, before = time.monotonic() + SECONDS, self.updates
        while self.updates == before:
            assert time.monotonic() < deadline, "no event"
            self.loop.turn(SECONDS)

    def until_watched(self) -> None:
        while self.logs._next.when is not None:
            self.wait()

    def watches(self) -> int:
        """How many files the kernel watches for the agent."""
        inotify = self.logs._inotify
        if inotify is None:
            return 0
        return Path(f"/proc/self/fdinfo/{inotify.fileno()}").read_text().count("inotify wd:")


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_a_log_that_grows_is_not_watched_until_it_pauses(logs: Logs) -> None:
    logs.until_watched()
    assert logs.watches() == 2
    for turn in range(1, 4):
        logs.write(0)
        assert logs.watches() == 1
        logs.wait()
        assert logs.sizes(0)[-1] == 7 * turn
        assert logs.watches() == 1
    logs.until_watched()
    assert logs.watches() == 2
    logs.write(0)
    logs.write(1)
    logs.wait()
    assert (logs.sizes(0)[-1], logs.sizes(1)) == (28, [7])


def test_a_removed_log_leaves_the_others_watched(logs: Logs) -> None:
    os.remove(logs.paths[0])
    logs.until_watched()
    assert logs.watches() == 1
    logs.write(1)
    logs.wait()
    assert logs.sizes(1) == [7]
