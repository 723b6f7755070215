"""The record of a job whose disk is full."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

from distrun import events
from distrun.record import EventLog, read

STARTED = [events.TaskStarted(at=1.5, task=f"worker:{n}", attempt=0, pid=n) for n in range(5)]


# Appends until it cannot, twice, saying each time how far it came and why; argv: the record.
FILL = """
import sys
from distrun import events
from distrun.record import EventLog
from distrun.agent.protocol import Cause, Code
log = EventLog(sys.argv[1])
count = 0
for _ in range(2):
    try:
        while count < 40_000:
            cause = Cause(Code.LOG_DISK_FULL, path="x" * (count % 211))
            log.append(events.HostFault(at=float(count), host="h", cause=cause))
            count += 1
    except OSError as error:
        print(count, error.errno, flush=True)
"""


def fill(path: Path, *wrapper: str) -> list[tuple[int, int]]:
    command = [*wrapper, sys.executable, "-c", FILL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [(int(count), int(number)) for count, number in map(str.split, done.stdout.splitlines())]


def test_a_full_disk_is_an_error_and_there_is_room_for_the_end(small_disk: Path) -> None:
    path = small_disk / "events.jsonl"
    (full, why), (end, why_then) = fill(path)
    assert why == why_then == 28
    assert [event.at for event in read(str(path))] == list(range(end))
    assert path.read_bytes().endswith(b"\n")
    assert (end - full) * 100 > 200_000, "bytes that were kept, at 100 or more an event"


def test_the_room_is_given_back_at_the_end(small_disk: Path) -> None:
    path = small_disk / "events.jsonl"
    log = EventLog(str(path))
    for event in STARTED:
        log.append(event)
    assert path.stat().st_blocks * 512 > 200_000
    log.close()
    assert path.stat().st_blocks * 512 <= 4096
    assert read(str(path)) == STARTED


def test_a_limit_on_files_is_an_error_and_the_record_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    (count, why), (again, _) = fill(path, "prlimit", "--fsize=10000")
    assert count == again > 10
    assert why == errno.EFBIG
    assert [event.at for event in read(str(path))] == list(range(count))
    assert path.read_bytes().endswith(b"\n")
