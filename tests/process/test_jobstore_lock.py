"""The lock and the socket of a job's folder, held by another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distrun.job.folder import JobStore

# Holds a job's lock in a process of its own, as its supervisor does, until its input ends.
HOLDER = """
import sys
from pathlib import Path
from distrun.job import folder as job_folder
folder = job_folder.JobFolder(Path(sys.argv[1]))
job_folder.create(folder, b"name: x\\n")
server = folder.listen()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("path", ['it\'s "a" path\nwith $(x) and ü', "/".join(["deep" * 20] * 3)])
def test_the_lock_tells_whether_a_supervisor_lives_and_its_socket_is_reached(
    path: str, tmp_path: Path
) -> None:
    store = JobStore(tmp_path / path)
    folder = store.new_folder("mnist")
    assert folder.supervisor_pid() is None
    argv = [sys.executable, "-c", HOLDER, str(folder.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            assert folder.supervisor_pid() == holder.pid
            assert [each.path for each in store.running()] == [folder.path]
            with pytest.raises(OSError, match="temporarily unavailable"):
                folder.acquire_lock()
            connection = folder.connect()
            assert connection is not None
            connection.close()
        finally:
            holder.kill()
    assert folder.supervisor_pid() is None
    assert folder.connect() is None
    assert store.running() == []
