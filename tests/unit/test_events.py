"""The record: what is written is read again, whatever became of the disk; specs and plans, too."""

import dataclasses
import json
import os
import resource
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.generated import OS_TEXT, causes
from harness.parts.advice import model as advice_model
from harness.parts.agent import protocol, write_unsent
from harness.parts.job import events
from harness.parts.plan import Plan, tasks
from harness.parts.protocol import Cause, Code, Subject
from harness.parts.records import EventLog, EventReader, JobFolder, read
from harness.parts.spec import Spec, host_spec
from harness.parts.spec import model as spec_model
from harness.parts.top import field_names, from_json, range_of, replace, to_json
from harness.parts.verdict import Kind
from harness.parts.verdict import model as verdict_model

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


def test_no_part_of_an_event_stays_that_there_is_no_room_for(record: Path) -> None:
    before, limits = record.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    log = EventLog(str(record))
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append(STARTED[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.close()
    assert record.read_bytes() == before


def test_a_torn_last_line_is_ignored_wherever_it_is_torn(record: Path) -> None:
    whole, reader, found = record.read_bytes(), EventReader(str(record)), []
    for size in range(whole.rindex(b"\n", 0, -1) + 1, len(whole) + 1):
        record.write_bytes(whole[:size])
        found += reader.read_new()
        assert read(str(record)) == found == STARTED[: 4 + (size == len(whole))]
    assert not reader.has_skipped
    os.truncate(record, 1 << 30)
    assert (reader.read_new(), reader.has_skipped) == ([], True)


def test_a_jobs_state_follows_its_record(record: Path) -> None:
    folder, log = JobFolder(record.parent), EventLog(str(record))
    for host in ("gpu1", "gpu2"):
        log.append(events.HostLeftOut(at=2.0, host=host, cause=Cause(Code.AGENT_ABANDONED)))
        assert [*folder.state().hosts][-1] == host
        assert folder.state() == JobFolder(record.parent).state()
    log.close()
    record.unlink()
    assert not folder.state().hosts


@pytest.mark.parametrize(
    "damage",
    [
        *(b"\n", b"\x00\x00\xff\n", b"[]\n", b'{"at": 1}\n', b'{"event": ["TaskStarted"]}\n'),
        b'{"event": "TaskStarted", "at": 1}\n', b'{"event": "OfALaterVersion", "at": 1}\n',
        b"[" * 100_000 + b"\n",
        *(
            json.dumps({**events.encode(STARTED[1]), **change}).encode() + b"\n"
            for change in (
                {"at": 1e300}, {"at": float("inf")}, {"at": "now"}, {"pid": "x"}, {"pid": None},
                {"attempt": float("nan")}, {"task": 5}, {"task": ["a"]},
                {"event": "Synced", "host": "a", "files": 1, "size": 10**400},
                {"event": "TaskNotStarted", "cause": {"code": "log_not_opened", "within": [[]]}},
                {"event": "JobEnded", "outcome": {}}, {"event": "HostReady"}, {"event": "HostLost"},
            )
        ),
    ],
    ids=range(21),
)  # fmt: skip
def test_a_line_that_cannot_be_read_takes_no_other_with_it(record: Path, damage: bytes) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    assert read(str(record)) == STARTED


def test_an_agents_unsent_reports_are_read_as_events(tmp_path: Path) -> None:
    oom = Cause(Code.OOM_KILL_COUNTED, path="/sys/fs/cgroup/memory.events", count=1, total=2)
    report = protocol.TaskExited("worker:0", 0, 1.0, None, 9, oom=oom)
    write_unsent(str(tmp_path / protocol.UNSENT_REPORTS), [report])
    aborted, exited = read(str(tmp_path / protocol.UNSENT_REPORTS))
    assert isinstance(aborted, events.Aborted)
    assert exited == events.TaskExited(at=1.0, task="worker:0", attempt=0, signal=9, oom=oom)


st.register_type_strategy(str, OS_TEXT)
st.register_type_strategy(int, st.integers(-(1 << 63), 1 << 63))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Cause, causes(OS_TEXT))
st.register_type_strategy(Kind, st.sampled_from(list(Kind)))
st.register_type_strategy(Subject, st.sampled_from(list(Subject)))


def short_tuples(kind: Any) -> st.SearchStrategy[Any]:
    """Tuples of one type with up to three elements: long ones take long and show no more."""
    element, *others = get_args(kind)
    if others != [Ellipsis]:
        return st.tuples(*map(st.from_type, get_args(kind)))
    return st.lists(st.from_type(element), max_size=3).map(tuple)


def instances(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    values = {each: st.from_type(hints[each]) for each in field_names(kind)}
    for name in values:  # numbers out of range are refused
        found = range_of(name)
        if found is None:
            continue
        low, high = found
        whole, real = st.integers(int(low), int(high)), st.floats(low, high)
        for plain, numbers in ((int, whole), (float, real), (tuple[int, ...], st.tuples(whole))):
            if hints[name] in (plain, plain | None):
                values[name] = numbers if hints[name] == plain else st.none() | numbers
    built = st.builds(kind, **values)
    if kind is events.TaskRecord:
        return built.map(lambda task: replace(task, name=f"{task.role.value}:{task.index}"))
    return built


st.register_type_strategy(tuple, short_tuples)
for module in (events, tasks, spec_model, host_spec, verdict_model, advice_model):
    for found in vars(module).values():
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            st.register_type_strategy(found, instances)
for found in events.KINDS.values():
    st.register_type_strategy(found, instances)

ANY_EVENT = st.sampled_from(sorted(events.KINDS)).flatmap(
    lambda name: st.from_type(events.KINDS[name])
)


@given(event=ANY_EVENT)
def test_every_event_comes_back(event: events.Event) -> None:
    assert events.decode(json.loads(json.dumps(events.encode(event)))) == event


@given(value=st.from_type(Spec) | st.from_type(Plan))
def test_specs_and_plans_come_back(value: Spec | Plan) -> None:
    assert from_json(type(value), json.loads(json.dumps(to_json(value)))) == value
