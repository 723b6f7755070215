"""The lock and the socket of a job's folder, held by another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrun.jobstore import JobFolder, JobStore

STRANGE = 'it\'s "a" path\nwith $(touch oops) and ü'


@pytest.fixture(params=["plain", STRANGE, "/".join(["deep" * 20] * 3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / request.param)


# Holds a job's lock in a process of its own, as its supervisor does, until its input ends.
HOLDER = """
import sys
from pathlib import Path
from distrun import jobstore
folder = jobstore.JobFolder(Path(sys.argv[1]))
jobstore.create(folder, b"name: x\\n")
server = folder.listen()
print("ready", flush=True)
sys.stdin.read()
"""


class Holder:
    def __init__(self, folder: JobFolder) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for holder in made:
        holder.kill()


def test_the_lock_tells_whether_a_supervisor_lives(store: JobStore, holders: list[Holder]) -> None:
    folder = store.new_folder("mnist")
    assert folder.supervisor_pid() is None
    holders.append(Holder(folder))
    assert folder.supervisor_pid() == holders[0].process.pid
    assert [each.path for each in store.running()] == [folder.path]
    with pytest.raises(OSError, match="temporarily unavailable"):
        folder.acquire_lock()
    holders[0].kill()
    assert folder.supervisor_pid() is None
    assert store.running() == []


def test_its_socket_is_reached_whatever_its_path(store: JobStore, holders: list[Holder]) -> None:
    folder = store.new_folder("mnist")
    holders.append(Holder(folder))
    connection = folder.connect()
    assert connection is not None
    connection.close()
    holders[0].kill()
    assert folder.connect() is None
