"""`logs`: parts, several jobs, few newlines, `logs.max_size`; `events -n`."""

import json
import os
import signal
import time
from datetime import datetime, timezone
from typing import Any

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

TWICE = (
    'printf "\\033[31mearly\\033[0m\\n"; touch "up-$DISTRUN_TASK"; '
    "until test -e go; do sleep 0.02; done; echo late; printf '10%%\\r20%%'"
)
LATE = [(task, text) for task in (0, 1) for text in ("late", "20%")]


def objects(distrun: Distrun, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in distrun.asked("logs", "--json", *args).splitlines()]


def test_parts_by_time_and_words_and_as_json(distrun: Distrun) -> None:
    before = time.time()
    job_id = distrun.detached(TWICE)
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2)
    wait_until(lambda: distrun.asked("logs", "--json").count("early") == 2)
    between: float = max(each["at"] for each in objects(distrun)) + 0.2
    wait_until(lambda: time.time() > between + 0.2)
    (distrun.cwd / "go").touch()
    assert distrun("wait", job_id).returncode == 0

    zoned = datetime.fromtimestamp(between, timezone.utc).astimezone().isoformat()
    first = distrun("logs", "--until", zoned[:-6]).stdout
    second = distrun.asked("logs", "--since", zoned)
    assert sorted(first.splitlines()) == ["worker:0 | early", "worker:1 | early"]
    assert sorted(second.splitlines()) == sorted(f"worker:{n} | {t}" for n, t in LATE)
    assert distrun.asked("logs", "--until", "1d") == ""
    assert len(distrun.asked("logs", "--since", "1h").splitlines()) == 6
    only = distrun.asked("logs", "--grep", "^e", "-n", "1", "-t", "worker:1")
    assert only == "worker:1 | early\n"
    either = distrun.asked("logs", "--grep", "^e", "--grep", "^l", "-t", "worker:1")
    assert either == "worker:1 | early\nworker:1 | late\n"
    for line in distrun.asked("logs", "--timestamps", "-t", "worker:0").splitlines():
        at, _, text = line.partition(" ")
        assert (datetime.fromisoformat(at).timestamp() > between) == ("early" not in text)
    for wrong in (["--until", "soon"], ["--until", "1m", "-f"], ["--grep", "("]):
        assert distrun("logs", *wrong).returncode == 2
    assert "regular expression" in distrun("logs", "--grep", "(" * 3000).stderr

    one = objects(distrun, "-t", "worker:0")
    assert [each["line"] for each in one] == ["early", "late", "20%"]
    for each in one:
        assert each.keys() == {"version", "job_id", "task", "at", "line"}
        assert (each["version"], each["job_id"], each["task"]) == (2, job_id, "worker:0")
        assert isinstance(each["at"], float)
        assert before - 1 < each["at"] < time.time() + 1
    raw = objects(distrun, "--raw", "-t", "worker:0")
    assert [each["line"] for each in raw] == ["\x1b[31mearly\x1b[0m", "late", "10%\r20%"]
    assert [each["line"] for each in objects(distrun, "--grep", "%", "-n", "1")] == ["20%"]
    assert [each["line"] for each in objects(distrun, "-f", "-t", "worker:0")] == [
        each["line"] for each in one
    ]


def test_several_jobs_and_all_jobs(distrun: Distrun) -> None:
    ids = []
    for number, name in enumerate(("one", "two")):
        ids.append(distrun.detached(f"echo Error {number}; echo fine", name=name, workers=1))
        distrun("wait")
    first, second = ids
    both = distrun.asked("logs", first, "two", "--grep", "Error").splitlines()
    width = len(f"{first} worker:0")
    assert both == [f"{first} worker:0 | Error 0", f"{second} worker:0".ljust(width) + " | Error 1"]
    everything = distrun.asked("logs", "--all-jobs", "--grep", "Error").splitlines()
    assert [line.split()[0] for line in everything] == ids, "merged by time"
    assert [each["job_id"] for each in objects(distrun, "--all-jobs", "--grep", "Error")] == ids
    assert distrun.asked("logs", first, first).startswith("worker:0 | Error 0\n")
    for wrong in (["--all-jobs", first], ["--all-jobs", "-f"], [first, second, "-f"]):
        distrun.told(2, "logs", *wrong)
    assert "distrun logs 'a b' -t worker:0" in distrun.told(2, "logs", "a b", "worker:0")
    assert distrun.launch("", hosts=["none.invalid"], name="away").returncode == 69
    assert "none, as none was planned" in distrun.told(2, "logs", "away", "-t", "worker:0")
    assert "  unknown" not in distrun.asked("ps", "-n", "1")


def test_the_last_events(distrun: Distrun) -> None:
    distrun.detached("exec sleep 600", workers=1)
    following = distrun.start("events", "-f", "-n", "1", stdout=-1, text=True)
    assert following.stdout is not None
    first = following.stdout.readline()
    assert "started" in first
    following.send_signal(signal.SIGSTOP)  # so that many events are new at once
    distrun("kill")
    following.send_signal(signal.SIGCONT)
    shown = first + following.stdout.read()
    assert shown.count("\n") > 2
    assert distrun.asked("events").endswith(shown)
    assert following.wait(30) == 0
    everything = distrun.asked("events", "--json").splitlines()
    assert distrun.asked("events", "--json", "-n", "2").splitlines() == everything[-2:]
    assert distrun.asked("events", "-n", "9" * 30) == distrun.asked("events")
    assert distrun("events", "-f", "-n", "1").stdout == distrun.asked("events", "-n", "1")


def test_last_lines_are_found_in_a_log_of_few_newlines(distrun: Distrun) -> None:
    """Before, this took time that grew with the square of the log's size, and memory with it."""
    script = "echo first; truncate -s 4T /proc/self/fd/1; echo cut; echo after; exit 1"
    job = distrun.detached(script, workers=1)
    assert distrun("wait", job, timeout=60).returncode == 1
    assert distrun("logs", timeout=60).stdout.endswith("worker:0 | after\n")
    assert distrun("logs", "-n", "3", timeout=60).stdout.endswith(" | after\n")


LIMIT = {"max_size": "300KB"}
# Pauses while it prints, so that its log is limited before it has ended.
LINES = 'for i in 1 2 3 4; do seq -f "line %08.0f of the task" "$i"0000 "$i"9999; sleep 0.2; done'


def dropped_in(said: str) -> list[str]:
    return [line for line in said.splitlines() if "were dropped" in line]


def numbers(output: str) -> list[int]:
    """The lines' numbers; each line must be whole."""
    found = []
    for line in output.splitlines():
        _, _, text = line.partition("line ")
        number, _, rest = text.partition(" ")
        assert (len(number), rest) == (8, "of the task"), line
        found.append(int(number))
    return found


def test_only_the_newest_output_stays_and_every_command_reads_it(distrun: Distrun) -> None:
    # Each quarter is less than what is kept, and is shown before the next one is written.
    shown_quarter = "; until [ -e shown$i ]; do sleep 0.02; done; done"
    spec = distrun.write_spec(LINES.replace("; sleep 0.2; done", shown_quarter), 1, logs=LIMIT)
    output = distrun.cwd / "output"
    with output.open("wb") as out:
        launch = distrun.start("launch", spec, stdout=out, stderr=-1)
        for quarter in range(1, 5):
            last_line = f"line 000{quarter}9999 of the task\n"
            wait_until(lambda: output.read_text().endswith(last_line))  # noqa: B023
            (distrun.cwd / f"shown{quarter}").touch()
        said = launch.communicate(timeout=60)[1].decode()
    assert launch.returncode == 0, said
    assert len(numbers(output.read_text())) == 40_000
    assert not dropped_in(said)
    log = distrun.status()["tasks"][0]["log"]
    size = os.stat(log).st_size
    assert size == 40_000 * 26
    assert 300_000 <= os.stat(log).st_blocks * 512 <= 300_000 + 64 * 1024 + 4096

    shown = distrun("logs")
    kept = numbers(shown.stdout)
    assert kept == list(range(kept[0], 50_000))
    (said,) = dropped_in(shown.stderr)
    assert said.startswith("distrun: worker:0: the first ")
    assert said.endswith(" kB were dropped (logs.max_size: 300 kB)")
    dropped = size - len(kept) * 26
    assert 0 <= dropped - int(said.split()[4]) * 1000 + 500 < 1100

    last = distrun("logs", "-n", "3")
    assert numbers(last.stdout) == [49_997, 49_998, 49_999]
    assert not last.stderr
    assert numbers(distrun.asked("logs", "--until", "0s", "--raw")) == kept
    found = distrun("logs", "--grep", "9 of", "-t", "worker")
    assert numbers(found.stdout) == [each for each in kept if each % 10 == 9]
    assert len(dropped_in(found.stderr)) == 1
    assert distrun.asked("events", "--json").count('"log_max_size_bytes": 300000') == 1


@pytest.mark.parametrize("command", ["logs", "events"])
def test_following_ends_with_its_reader(distrun: Distrun, command: str) -> None:
    distrun.detached("echo begun; exec sleep 600", workers=1)
    follow = distrun.start(command, "-f", stdout=-1)
    assert follow.stdout is not None
    assert follow.stdout.readline()
    files = [each for each in distrun.home.glob("jobs/*/*.*") if each.is_file()]
    assert {each.name for each in files if each.stat().st_mode & 0o077} == set()
    follow.stdout.close()
    assert follow.wait(30) == 128 + signal.SIGPIPE
    distrun.checked("kill")


def test_an_overtaken_reader_shows_whole_lines_and_what_is_missing(distrun: Distrun) -> None:
    go = distrun.cwd / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; {LINES}"
    launch = distrun.start(
        "launch", distrun.write_spec(script, 1, logs=LIMIT), stdout=-1, stderr=-1
    )
    wait_until(lambda: distrun.asked("ps", "--json").count("job_id") == 1)
    follow = distrun.start("logs", "-f", stdout=-1, stderr=-1)
    go.touch()
    # Nobody reads: the pipes are full, and the task goes on.
    wait_until(lambda: distrun.status()["state"] == "succeeded")
    for process in (follow, launch):
        out, err = process.communicate(timeout=60)
        kept = numbers(out.decode())
        assert kept == sorted(set(kept))
        assert kept[-1] == 49_999
        assert len(kept) < 40_000
        assert len(dropped_in(err.decode())) == 1, err
        assert process.returncode == 0
