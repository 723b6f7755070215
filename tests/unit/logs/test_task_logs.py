"""The index of logs: real files, real inotify."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.parts.agent import Loop, TaskLogs, index_of
from harness.parts.protocol import INDEX_RECORD

SECONDS = 30.0


class Logs(TaskLogs):
    """Two logs whose growth is indexed, with an event loop."""

    def __init__(self, folder: Path) -> None:
        no_link: Any = None
        self.updates = 0
        self.loop = Loop()
        super().__init__(str(folder), None, no_link, self.loop)
        self.paths = [str(folder / name) for name in ("worker-0.log", "worker-1.log")]
        for path in self.paths:
            self.open(path)

    def check_disk(self) -> None:
        self.updates += 1

    def write(self, number: int) -> None:
        with open(self.paths[number], "ab") as log:
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

    def watched(self) -> int:
        """Wait until the logs have paused. Returns how many the kernel watches then."""
        while self._next.when is not None:
            self.wait()
        assert self._inotify is not None
        return Path(f"/proc/self/fdinfo/{self._inotify.fileno()}").read_text().count("inotify wd:")


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_a_log_that_grows_is_indexed_and_watched_again_once_it_pauses(logs: Logs) -> None:
    for turn in range(1, 4):
        assert logs.watched() == 2
        logs.write(0)
        logs.wait()
        assert logs.sizes(0)[-1] == 7 * turn
        assert len(logs._watches) == 1, "a watch makes each write slower"


def test_a_removed_log_leaves_the_others_watched(logs: Logs) -> None:
    os.remove(logs.paths[0])
    assert logs.watched() == 1
    logs.write(1)
    logs.wait()
    assert logs.sizes(1) == [7]
