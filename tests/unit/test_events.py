"""The record: what is written is read again, whatever became of the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrun import events
from distrun.agent.protocol import Cause, Code
from distrun.record import EventLog, read

STARTED = [events.TaskStarted(at=1.5, task=f"worker:{n}", attempt=0, pid=n) for n in range(5)]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    for event in STARTED:
        log.append(event)
    log.close()
    return path


def test_what_is_appended_is_read_in_order(record: Path) -> None:
    assert read(str(record)) == STARTED
    assert record.stat().st_mode & 0o777 == 0o600


def test_one_event_is_one_line_of_ascii(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event = events.HostFault(
        at=0.0, host="a\nb\u2028", cause=Cause(Code.LOG_DISK_FULL, path="caf\udce9 \x00")
    )
    log = EventLog(str(path))
    written = log.append(event)
    log.close()
    raw = path.read_bytes()
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert json.loads(raw) == written == {"event": "HostFault", **written}
    assert read(str(path)) == [event]


def test_a_record_is_gone_on_with(record: Path) -> None:
    log = EventLog(str(record))
    log.append(STARTED[0])
    log.close()
    assert read(str(record)) == [*STARTED, STARTED[0]]


def test_a_torn_last_line_is_ignored_wherever_it_is_torn(record: Path) -> None:
    whole = record.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for size in range(start, len(whole)):
        record.write_bytes(whole[:size])
        assert read(str(record)) == STARTED[:-1]


@pytest.mark.parametrize(
    "damage",
    [
        b"\n",
        b"\x00\x00\xff\n",
        b"[]\n",
        b"null\n",
        b'{"at": 1}\n',
        b'{"event": ["TaskStarted"]}\n',
        b'{"event": "TaskStarted", "at": 1}\n',
        b'{"event": "TaskStarted", "at": null, "task": "a", "attempt": 0, "pid": 1}\n',
        b'{"event": "OfALaterVersion", "at": 1}\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=range(10),
)
def test_a_line_that_cannot_be_understood_takes_no_other_with_it(
    record: Path, damage: bytes
) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    assert read(str(record)) == STARTED


def test_what_a_later_version_adds_to_an_event_is_left_out(record: Path) -> None:
    known = {**events.encode(STARTED[0]), "later": {"a": 1}}
    record.write_text(json.dumps(known) + "\n")
    assert read(str(record)) == STARTED[:1]


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
        while count < 10_000:
            cause = Cause(Code.LOG_DISK_FULL, path="x" * (count % 211))
            log.append(events.HostFault(at=float(count), host="h", cause=cause))
            count += 1
    except OSError as error:
        print(count, error.errno, flush=True)
"""


def fill(path: Path, *wrapper: str) -> list[tuple[int, int]]:
    command = [*wrapper, sys.executable, "-c", FILL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [(int(count), int(errno)) for count, errno in map(str.split, done.stdout.splitlines())]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


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
    (count, _), (again, _) = fill(path, "prlimit", "--fsize=10000")
    assert count == again > 10
    assert [event.at for event in read(str(path))] == list(range(count))
    assert path.read_bytes().endswith(b"\n")
