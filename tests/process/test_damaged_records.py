"""Commands read a job's or a bundle's files with any odd value, and show the rest."""

from __future__ import annotations

import copy
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness.command import Detach, Distrun, Status, WriteSpec
from harness.damaged_records import COMMANDS, MISSING, VALUES, Record, _paths, run_here
from harness.odd_values import dumps

LINES = (
    *(b"", b"null", b"\x00\xff\xfe", b'{"event": "JobEnded"', b"[" * 100_000),
    b'{"event": "OfALaterVersion", "at": 1}',
    b'{"event": "TaskReported", "at": 1, "task": "worker:0", "values": {"LOSS": "%s"}}'
    % (b"x" * 10_000_000),
)
RESULTS: tuple[object, ...] = (
    *(None, [], {"exit_code": 256}, {"exit_code": "0"}, {"exit_code": None}),
    *({"result": "won"}, {"verdict": {"kind": 1}}, {"cause": "\ud800"}),
)


@pytest.fixture
def damaged(distrun: Distrun, tmp_path: Path) -> Record:
    return Record(distrun, tmp_path)


def test_a_field_of_any_event_may_have_any_value(damaged: Record) -> None:
    chooser = random.Random()
    places = list(damaged.places())
    for number, path in chooser.sample(places, len(places) // 2):
        line = damaged.damage(number, path, chooser.choice(VALUES))
        print(line[:2000])  # shown if the test fails
        command = chooser.choice(COMMANDS)
        damaged.check(command, number, *run_here(command))
    (planned,) = (each for each, line in enumerate(damaged.lines) if b'"JobPlanned"' in line)
    for value in chooser.sample(VALUES, 8):  # logs are found by the names
        damaged.damage(planned, ("tasks", 0, "name"), value)
        damaged.check(("logs",), planned, *run_here(("logs",)))


def test_a_line_may_be_anything_and_a_result_that_is_damaged_is_not_success(
    distrun: Distrun, damaged: Record, status: Status
) -> None:
    """The commands run as processes of their own."""
    number = len(damaged.lines) - 1
    end = json.loads(damaged.lines[number])
    for result in RESULTS:
        outcome = {**end["outcome"], **result} if isinstance(result, dict) else result
        damaged.write(number, json.dumps({**end, "outcome": outcome}).encode("ascii"))
        waited = distrun("wait")
        assert waited.returncode == 69
        assert "is damaged: the result of the job is unknown" in waited.stderr
        assert status()["state"] == "lost"
    assert "or its record is damaged" in distrun("status").stdout
    assert {task["exit_code"] for task in status()["tasks"]} == {None, 4, 5}
    for line in LINES:
        damaged.write(number - 1, line)
        command = random.choice(COMMANDS)
        done = distrun(*command)
        damaged.check(command, number - 1, done.returncode, done.stdout, done.stderr)
    assert distrun("clean", "--all").returncode == 0
    assert not damaged.path.exists()


def test_a_running_job_may_have_process_ids_that_there_are_not_and_lose_its_beginning(
    distrun: Distrun, detached: Detach
) -> None:
    job_id = detached("echo hello; exec sleep 600", workers=1)
    record = distrun.home / "jobs" / job_id / "events.jsonl"
    lines = list(map(json.loads, record.read_text().splitlines()))
    for pid in (1 << 31, 10**30, -1, 0, 1.5):
        changed = ({**each, "pid": pid} if "pid" in each else each for each in lines)
        record.write_text("".join(json.dumps(each) + "\n" for each in changed))
        for command in ("status", "ps"):
            done = distrun(command)
            assert (done.returncode, done.stderr) == (0, ""), pid
    assert distrun("kill").returncode == 0
    last = record.read_bytes().splitlines(keepends=True)[-1]
    record.write_bytes(last)
    shown = distrun("status").stdout
    assert "its record is damaged: the beginning is missing" in shown
    assert " d " not in shown.splitlines()[0], "the job did not take days"
    for kept in (last, b""):
        record.write_bytes(kept)
        output = distrun("logs", "--raw")
        assert (output.returncode, output.stdout) == (0, "hello\n")
        assert f"the record of job {job_id} is damaged" in output.stderr
        assert "worker:0 | hello" in distrun("logs", "-t", "worker:0").stdout


CUT = {"has no events": b"", "is missing": None, "is damaged": b'{"event":"JobCre'}
TOLD = {
    **dict.fromkeys(("ps -a", "status", "status --json", "status --timing", "logs"), 0),
    **dict.fromkeys(("logs --json", "logs -f", "events", "events --json", "events -f"), 0),
    **dict.fromkeys(("report -o page.html", "bundle -o job.tar.gz", "kill JOB"), 0),
    **dict.fromkeys(("wait", "resume"), 69),
}


def test_a_record_that_is_cut_to_nothing_is_told_by_all_commands(
    distrun: Distrun, detached: Detach, status: Status
) -> None:
    job_id = detached("echo hello", workers=1)
    distrun("wait")
    record = distrun.home / "jobs" / job_id / "events.jsonl"

    def cut(fault: str) -> None:
        record.unlink(missing_ok=True)
        kept = CUT[fault]
        if kept is not None:
            record.write_bytes(kept)

    for fault, lines in (("is missing", list(TOLD)), *((each, ["logs", "wait"]) for each in CUT)):
        for line in lines:
            cut(fault)
            done = distrun(*line.replace("JOB", job_id).split())
            assert done.returncode == TOLD[line], (line, done.stderr)
            text = "is damaged" if line.startswith("resume") else fault
            assert f"the record of job {job_id} {text}" in done.stderr, (line, done.stderr)
            assert "to continue it" not in done.stdout + done.stderr, line
        cut(fault)
        job = status()
        assert (job["state"], job["record_fault"], job["resume_command"]) == ("lost", fault, None)


CASES = 30
ODD_TEXTS = ("\ud8000", "1e400", "\0", "<b>", "x" * 200_000)
READERS = (
    *(("status",), ("status", "--timing"), ("ps", "-a", "--json"), ("logs", "--timestamps")),
    *(("bundle", "-o", "/dev/null"), ("events",), ("clean", "--dry-run")),
)


def changed(text: str, chooser: random.Random) -> str:
    """A text of JSON with one value changed."""
    document = json.loads(text)
    *above, last = chooser.choice([*_paths(document)])
    holder: Any = document
    for step in above:
        holder = holder[step]
    values = ODD_TEXTS if isinstance(holder[last], str) and chooser.random() < 0.5 else VALUES
    value = chooser.choice(values)
    if value == MISSING:
        del holder[last]
    else:
        holder[last] = copy.deepcopy(value)
    return dumps(document).decode()


@pytest.fixture
def files(distrun: Distrun, write_spec: WriteSpec) -> Path:
    """The folder of a job that has failed."""
    assert distrun("launch", write_spec("echo hello; sleep 0.3; exit 3")).returncode == 3
    (folder,) = (distrun.home / "jobs").iterdir()
    return folder


def test_no_odd_value_is_a_defect(distrun: Distrun, files: Path, tmp_path: Path) -> None:
    assert distrun("bundle", "-o", "whole.tar.gz").returncode == 0
    with tarfile.open(tmp_path / "whole.tar.gz") as whole:
        whole.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    chooser, shown = random.Random(), 0
    for _ in range(CASES):
        top = chooser.choice((files, unpacked))
        names = [each for each in top.rglob("*.json*") if each.read_text().strip()]
        path = chooser.choice(sorted(names))
        before = path.read_text()
        lines = before.splitlines() if path.suffix == ".jsonl" else [before]
        number = chooser.randrange(len(lines))
        lines[number] = changed(lines[number], chooser)
        print(path.name, lines[number][:2000])  # shown if the test fails
        path.write_text("\n".join(lines) + "\n")
        if top == files:
            command: tuple[str, ...] = chooser.choice(READERS)
        else:
            with tarfile.open(tmp_path / "odd.tar.gz", "w:gz", format=tarfile.GNU_FORMAT) as odd:
                for member in sorted(each for each in top.rglob("*") if each.is_file()):
                    odd.add(member, f"{top.name}/{member.relative_to(top)}")
            command = ("report", str(tmp_path / "odd.tar.gz"), "-o", "-")
        code, _, stderr = run_here(command)
        assert code == 0 or (top == unpacked and code == 2 and "bundle" in stderr), stderr
        assert "Traceback" not in stderr
        shown += top == unpacked and code == 0
        path.write_text(before)
    assert shown, "each bundle was refused"
