"""Files of a job that are damaged or replaced: commands show the rest, and wait for nothing."""

import copy
import json
import os
import random
import re
from pathlib import Path
from typing import Any

from harness.command import Distrun
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


def test_a_field_of_any_event_may_have_any_value(distrun: Distrun, tmp_path: Path) -> None:
    """In a sample of the fields: tests/faults/test_mutations.py tries each, with six values."""
    damaged = Record(distrun, tmp_path)
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
        assert (code, "result of the job is unknown" in told) == (69, True)
        job = json.loads(run_here(("status", "--json"))[1])["job"]
        assert (job["state"], job["record_fault"]) == ("lost", "is damaged")
    assert {task["exit_code"] for task in job["tasks"]} == {None, 4, 5}
    assert run_here(("clean", "--all"))[0] == 0
    assert not damaged.path.exists()


CUT = {"has no events": b"", "is missing": None, "is damaged": b'{"event":"JobCre'}
TOLD = {
    **dict.fromkeys(("ps -a", "status", "status --timing", "logs", "events"), 0),
    **dict.fromkeys(("report -o page.html", "bundle -o job.tar.gz", "kill JOB"), 0),
    **dict.fromkeys(("wait", "resume", "profile", "logs -f"), 69), "fetch JOB": 2,
}  # fmt: skip


COUNTS = ("task_count", "running_task_count", "restarts", "restarts_left", "resumed", "cpu_seconds")


def test_a_record_that_is_cut_to_nothing_is_told_by_all_commands(distrun: Distrun) -> None:
    job_id = distrun.detached("echo hello", workers=1)
    distrun("wait")
    record = distrun.home / "jobs" / job_id / "events.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)

    def cut(fault: str) -> None:
        record.unlink(missing_ok=True)
        kept = CUT[fault]
        if kept is not None:
            record.write_bytes(kept)

    for fault, commands in (("is missing", list(TOLD)), *((each, ["logs"]) for each in CUT)):
        for line in commands:
            cut(fault)
            done = distrun(*line.replace("JOB", job_id).split())
            assert done.returncode == TOLD[line], (line, done.stderr)
            text = "is damaged" if line.startswith("resume") else fault
            assert f"the record of job {job_id} {text}" in done.stderr, (line, done.stderr)
            assert "to continue it" not in done.stdout + done.stderr, line
        cut(fault)
        job = distrun.status()
        assert (job["state"], job["record_fault"], job["resume_command"]) == ("lost", fault, None)
        assert {job[name] for name in COUNTS} == {None}
        page = distrun.asked("report", "-o", "-")
        assert "hello" in page
        assert not re.search("on 0 hosts|lasted|no tasks yet|Nothing was printed", page)
    record.write_bytes(b"".join(lines).replace(b'"code":0', b'"code":1e999'))
    for told in (distrun.asked("status"), distrun("wait").stderr):
        assert "its record is damaged: lines of it cannot be read" in told
    record.write_bytes(lines[-1])
    assert distrun("wait").stderr.startswith(f"{job_id} succeeded in ")
    shown = distrun.asked("status")
    assert "its record is damaged: the beginning is missing" in shown
    assert " d " not in shown.splitlines()[0], "the job did not take days"
    output = distrun("logs", "--raw")
    assert (output.returncode, output.stdout) == (0, "hello\n")
    record.unlink()
    assert re.search(r"record_damaged +unknown ", distrun.asked("ps", "-a"))
    other = distrun.detached("true", workers=1)
    distrun("wait", other)
    compared = json.loads(distrun.asked("compare", job_id, other, "--json"))["jobs"]
    known = [(each["task_count"], each["restarts"], each["host_count"]) for each in compared]
    assert known == [(None, None, None), (1, 0, 1)]


CASES = 20
ODD_TEXTS = ("\ud8000", "1e400", "\0", "<b>", "x" * 200_000)
READERS = (
    *(("status",), ("status", "--timing"), ("ps", "-a", "--json"), ("logs", "--timestamps")),
    *(("bundle", "-o", "/dev/null"), ("report", "-o", "-"), ("clean", "--dry-run"), ("fetch",)),
)


def changed(text: str, chooser: random.Random) -> str:
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
        command = chooser.choice(READERS)
        code, _, stderr = run_here(command)
        assert code == 0 or (command == ("fetch",) and code in (2, 69)), stderr
        assert "Traceback" not in stderr
        path.write_text(before)


REPLACEMENTS = {"fifo": "mkfifo {0}", "device": "ln -s /dev/zero {0}", "folder": "mkdir {0}"}
SECONDS = 30.0


def replacing(kind: str, path: str = '"$L"') -> str:
    make = REPLACEMENTS[kind].format(path)
    return f"echo hi; L=$(readlink /proc/$$/fd/1); rm -f {path}; {make}"


def test_a_task_that_replaces_its_log_or_its_index_fails_by_its_own_exit(distrun: Distrun) -> None:
    """And a restart of one fails, because it could print nothing, or it runs: it does not hang."""
    for kind in REPLACEMENTS:
        distrun.detached(f"{replacing(kind)}; exit 3", workers=1, name=kind)
    script = f"[ $DISTRUN_ATTEMPT = 0 ] || exit 0; {replacing('fifo')}; exit 3"
    restart = {"max": 1, "backoff": "10ms"}
    distrun.detached(script, workers=1, name="again", restart=restart)
    index = replacing("fifo", '"${L%.log}.idx"')
    distrun.detached(f"{index}; echo more; sleep 1; exit 3", workers=1, name="index")
    for kind in (*REPLACEMENTS, "index"):
        assert distrun("wait", kind, timeout=SECONDS).returncode == 3
        for command in (["logs"], ["logs", "--raw"], ["status"]):
            distrun.checked(*command, kind, timeout=SECONDS)
    assert "more" in distrun("logs", "index", timeout=SECONDS).stdout
    assert distrun("wait", "again", timeout=SECONDS).returncode != 0
    assert distrun("ps", "-a", timeout=SECONDS).returncode == 0


def test_no_command_waits_for_a_pipe_or_fails_of_a_folder(distrun: Distrun) -> None:
    assert distrun.launch("exit 3", workers=1).returncode == 3
    (folder,) = (distrun.home / "jobs").iterdir()
    for path in (folder / name for name in ("plan.json", "spec.json", "events.jsonl")):
        text = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for command in (["status"], ["ps"], ["logs"], ["fetch"], ["bundle", "-o", "/dev/null"]):
            done = distrun(*command, timeout=SECONDS)
            assert "Traceback" not in done.stderr, (path.name, command)
        assert "Traceback" not in distrun("report", "-o", "-", timeout=SECONDS).stderr
        path.unlink()
        path.write_bytes(text)

    plan = folder / "plan.json"
    text = plan.read_bytes()
    odd = [text.replace(b'"localhost"', each) for each in (rb'"\u0000"', rb'"\ud800"')]
    for damaged in (b'{"tasks":', b"[]", b'{"tasks": [{}]}', b'{"tasks": 5}', *odd):
        assert damaged != text
        plan.write_bytes(damaged)
        assert "is damaged, so it is not known where" in distrun.told(69, "fetch")
    plan.write_bytes(text)

    (folder / "logs").rename(folder / "former")
    (folder / "logs").touch()
    said = distrun.told(69, "resume", timeout=SECONDS)
    assert str(folder / "logs") in said
    assert "events.jsonl" not in said

    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").mkdir()
    other = distrun.detached("exit 0", workers=1, name="other")
    assert other in distrun.checked("ps", "-a", timeout=SECONDS).stdout
    assert distrun("status", folder.name, timeout=SECONDS).returncode == 0
    waited = distrun.told(69, "wait", folder.name, timeout=SECONDS)
    assert "is not a regular file: the result of the job is unknown" in waited
