"""Commands read the files of a job with any odd value, and show the rest."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness.command import Detach, Distrun, Status
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
    """In a sample of the fields: tests/faults/test_mutations.py tries each, with six values."""
    chooser = random.Random()
    places = list(damaged.places())
    for number, path in chooser.sample(places, len(places) // 16):
        line = damaged.damage(number, path, chooser.choice(VALUES))
        print(line[:2000])  # shown if the test fails
        command = chooser.choice(COMMANDS)
        damaged.check(command, number, *run_here(command))
    (planned,) = (each for each, line in enumerate(damaged.lines) if b'"JobPlanned"' in line)
    for value in chooser.sample(VALUES, 4):  # logs are found by the names
        damaged.damage(planned, ("tasks", 0, "name"), value)
        damaged.check(("logs",), planned, *run_here(("logs",)))
    last = len(damaged.lines) - 1
    for line in LINES:
        damaged.write(last - 1, line)
        command = chooser.choice(COMMANDS)
        damaged.check(command, last - 1, *run_here(command))
    end = json.loads(damaged.lines[last])
    for result in RESULTS:
        outcome = {**end["outcome"], **result} if isinstance(result, dict) else result
        damaged.write(last, json.dumps({**end, "outcome": outcome}).encode("ascii"))
        code, _, told = run_here(("wait",))
        assert code == 69
        assert "is damaged: the result of the job is unknown" in told
        job = json.loads(run_here(("status", "--json"))[1])["job"]
        assert job["state"] == "lost"
    assert "or its record is damaged" in run_here(("status",))[1]
    assert {task["exit_code"] for task in job["tasks"]} == {None, 4, 5}
    assert run_here(("clean", "--all"))[0] == 0
    assert not damaged.path.exists()


CUT = {"has no events": b"", "is missing": None, "is damaged": b'{"event":"JobCre'}
TOLD = {
    **dict.fromkeys(("ps -a", "status", "status --timing", "logs", "logs -f", "events"), 0),
    **dict.fromkeys(("report -o page.html", "bundle -o job.tar.gz", "kill JOB"), 0),
    **dict.fromkeys(("wait", "resume"), 69),
}


def test_a_record_that_is_cut_to_nothing_is_told_by_all_commands(
    distrun: Distrun, detached: Detach, status: Status
) -> None:
    job_id = detached("echo hello", workers=1)
    distrun("wait")
    record = distrun.home / "jobs" / job_id / "events.jsonl"
    end = record.read_bytes().splitlines(keepends=True)[-1]

    def cut(fault: str) -> None:
        record.unlink(missing_ok=True)
        kept = CUT[fault]
        if kept is not None:
            record.write_bytes(kept)

    for fault, lines in (("is missing", list(TOLD)), *((each, ["logs"]) for each in CUT)):
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
    record.write_bytes(end)
    shown = distrun.asked("status")
    assert "its record is damaged: the beginning is missing" in shown
    assert " d " not in shown.splitlines()[0], "the job did not take days"
    output = distrun("logs", "--raw")
    assert (output.returncode, output.stdout) == (0, "hello\n")


CASES = 20
ODD_TEXTS = ("\ud8000", "1e400", "\0", "<b>", "x" * 200_000)
READERS = (
    *(("status",), ("status", "--timing"), ("ps", "-a", "--json"), ("logs", "--timestamps")),
    *(("bundle", "-o", "/dev/null"), ("report", "-o", "-"), ("clean", "--dry-run")),
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


def test_no_odd_value_in_a_file_of_a_job_is_a_defect(distrun: Distrun) -> None:
    assert distrun.launch("echo hello; sleep 0.3; exit 3").returncode == 3
    chooser = random.Random()
    names = [each for each in distrun.home.rglob("*.json*") if each.read_text().strip()]
    for _ in range(CASES):
        path = chooser.choice(names)
        before = path.read_text()
        lines = before.splitlines() if path.suffix == ".jsonl" else [before]
        number = chooser.randrange(len(lines))
        lines[number] = changed(lines[number], chooser)
        print(path.name, lines[number][:2000])  # shown if the test fails
        path.write_text("\n".join(lines) + "\n")
        code, _, stderr = run_here(chooser.choice(READERS))
        assert code == 0, stderr
        assert "Traceback" not in stderr
        path.write_text(before)
