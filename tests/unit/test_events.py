"""The record: what is written is read again, whatever became of the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrun.agent import protocol, unsent_reports
from distrun.agent.protocol import Cause, Code
from distrun.job import events
from distrun.job.record import EventLog, read

STARTED = [events.TaskStarted(at=1.5, task=f"worker:{n}", attempt=0, pid=n) for n in range(5)]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    for event in STARTED:
        log.append(event)
    log.close()
    return path


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
        b'{"at": 1}\n',
        b'{"event": ["TaskStarted"]}\n',
        b'{"event": "TaskStarted", "at": 1}\n',
        b'{"event": "TaskStarted", "at": null, "task": "a", "attempt": 0, "pid": 1}\n',
        b'{"event": "OfALaterVersion", "at": 1}\n',
        b"[" * 100_000 + b"\n",
        *(
            json.dumps({**events.encode(STARTED[1]), **change}).encode() + b"\n"
            for change in (
                {"at": 1e300}, {"at": float("inf")}, {"at": "now"}, {"pid": "x"}, {"pid": None},
                {"attempt": float("nan")}, {"task": 5}, {"task": ["a"]}, {"event": "HostLost"},
                {"event": "TaskNotStarted", "cause": {"code": "log_not_opened", "errno": "x"}},
                {"event": "TaskNotStarted", "cause": {"code": "log_not_opened", "within": [[]]}},
                {"event": "JobEnded", "outcome": {}}, {"event": "HostReady"},
            )
        ),
    ],
    ids=range(22),
)  # fmt: skip
def test_a_line_that_cannot_be_understood_takes_no_other_with_it(
    record: Path, damage: bytes
) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    assert read(str(record)) == STARTED


def test_an_agents_unsent_reports_are_read_as_events(tmp_path: Path) -> None:
    oom = Cause(Code.OOM_KILL_COUNTED, path="/sys/fs/cgroup/memory.events", count=1, total=2)
    report = protocol.TaskExited("worker:0", 0, 1.0, None, 9, oom=oom)
    unsent_reports.write(str(tmp_path), [report])
    aborted, exited = read(str(tmp_path / protocol.UNSENT_REPORTS))
    assert isinstance(aborted, events.Aborted)
    assert exited == events.TaskExited(at=1.0, task="worker:0", attempt=0, signal=9, oom=oom)
