"""`logs --until`, `--json`, of several jobs and of all; `events -n`."""

from __future__ import annotations

import json
import re
import subprocess
import time
from datetime import datetime, timezone
from typing import Any

import psutil
import pytest

from harness.command import Distrun
from harness.terminal import OpenTerminal
from harness.values import not_none
from harness.waiting import wait_until

TWICE = (
    'printf "\\033[31mearly\\033[0m\\n"; touch "up-$DISTRUN_TASK"; '
    "until test -e go; do sleep 0.02; done; echo late; printf '10%%\\r20%%'"
)
LATE = [(task, text) for task in (0, 1) for text in ("late", "20%")]


def objects(distrun: Distrun, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in distrun("logs", "--json", *args).stdout.splitlines()]


def test_parts_by_time_and_words_and_as_json(distrun: Distrun) -> None:
    before = time.time()
    job_id = distrun.detached(TWICE)
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2)
    wait_until(lambda: distrun("logs", "--json").stdout.count("early") == 2)
    between: float = max(each["at"] for each in objects(distrun)) + 0.2
    wait_until(lambda: time.time() > between + 0.2)
    (distrun.cwd / "go").touch()
    assert distrun("wait", job_id).returncode == 0

    zoned = datetime.fromtimestamp(between, timezone.utc).astimezone().isoformat()
    stamp = zoned[:-6]
    for moment in (stamp, zoned):
        first = distrun("logs", "--until", moment).stdout
        second = distrun("logs", "--since", moment).stdout
        assert sorted(first.splitlines()) == ["worker:0 | early", "worker:1 | early"]
        assert sorted(second.splitlines()) == sorted(f"worker:{n} | {t}" for n, t in LATE)
        assert distrun("logs", "--since", moment, "--until", moment).stdout == ""
    assert distrun("logs", "--until", stamp, "-n", "1").stdout.endswith("| early\n")
    for empty in (("--until", "1d"), ("--since", "1ms")):
        assert distrun("logs", *empty).stdout == ""
    for whole in (("--until", "1ms"), ("--since", "1h")):
        assert len(distrun("logs", *whole).stdout.splitlines()) == 6

    found = distrun("logs", "--grep", "^(early|lat)").stdout.splitlines()
    assert sorted(found) == sorted(
        f"worker:{n} | {text}" for n in (0, 1) for text in ("early", "late")
    )
    only = distrun("logs", "--grep", "^e", "-n", "1", "-t", "worker:1").stdout
    assert only == "worker:1 | early\n"
    for line in distrun("logs", "--timestamps", "-t", "worker:0").stdout.splitlines():
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
    assert distrun("logs", "--all-jobs").returncode == 0  # there are none
    for number, name in enumerate(("one", "two", "three")):
        ids.append(distrun.detached(f"echo Error {number}; echo fine", name=name, workers=1))
        distrun("wait")
    first, second, third = ids
    both = distrun("logs", first, "two", "--grep", "Error").stdout.splitlines()
    width = len(f"{first} worker:0")
    assert both == [
        f"{first} worker:0 | Error 0",
        f"{second} worker:0".ljust(width) + " | Error 1",
    ]
    everything = distrun("logs", "--all-jobs", "--grep", "Error").stdout.splitlines()
    assert [line.split()[0] for line in everything] == ids, "merged by time"
    assert [each["job_id"] for each in objects(distrun, "--all-jobs", "--grep", "Error")] == ids
    assert distrun("logs", "--all-jobs", "-n", "1").stdout.split()[0] == third
    assert distrun("logs", first, first).stdout.startswith("worker:0 | Error 0\n")
    for wrong in (
        ["--all-jobs", first],
        ["--all-jobs", "-f"],
        [first, second, "-f"],
        [first, second, "-t", "ps"],
    ):
        done = distrun("logs", *wrong)
        assert (done.returncode, done.stdout) == (2, "")


def test_the_last_events(distrun: Distrun, terminal: OpenTerminal) -> None:
    distrun.detached("exec sleep 600", workers=1)
    following = distrun.start("events", "-f", "-n", "1", stdout=-1, text=True)
    assert following.stdout is not None
    assert "started" in following.stdout.readline()
    distrun("kill")
    assert len(following.stdout.read().splitlines()) > 1
    assert following.wait(30) == 0
    everything = distrun("events", "--json").stdout.splitlines()
    assert distrun("events", "--json", "-n", "2").stdout.splitlines() == everything[-2:]
    assert distrun("events", "-n", "0").stdout == ""
    assert distrun("events", "-n", "9" * 30).stdout == distrun("events").stdout
    assert distrun("events", "-f", "-n", "1").stdout == distrun("events", "-n", "1").stdout
    window = terminal("events", "-n", "1", columns=80)
    wait_until(window.ended)
    assert "stopped" in window.text()
    assert "started" not in window.text()
    assert max(map(len, window.text().splitlines())) <= 80


@pytest.mark.parametrize(
    "script",
    [
        "head -c 60000000 /dev/zero | tr '\\0' x; exit 1",
        "echo first; truncate -s 4T /proc/self/fd/1; echo cut; echo after; exit 1",
    ],
    ids=["no newline", "a hole after a line"],
)
def test_the_last_lines_of_a_failed_task_are_found_in_a_log_of_few_newlines(
    distrun: Distrun, script: str
) -> None:
    """Before, this took time that grew with the square of the log's size, and memory with it."""
    job = distrun.detached(script, workers=1)
    assert distrun("wait", job, timeout=60).returncode == 1
    done = distrun("logs", timeout=60)
    assert done.returncode == 0
    assert len(done.stdout) > 60_000_000 or done.stdout.endswith("worker:0 | after\n")
    assert distrun("logs", "-n", "3", timeout=60).stdout.endswith(done.stdout[-10:])


A_PART = 10_000_000
LINES = 300_000  # of 56 bytes, twice
MUCH = f'yes "a line of ordinary length, written again and again ......" | head -n {LINES}'


def test_the_first_and_the_last_page_read_only_a_part_of_much_output(distrun: Distrun) -> None:
    spec = distrun.write_spec(MUCH)
    done = distrun("launch", spec, stdout=subprocess.DEVNULL, timeout=250)
    assert done.returncode == 0
    size = sum(path.stat().st_size for path in distrun.home.rglob("*.log"))
    assert size > 30_000_000
    page = distrun.start("logs", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = [not_none(page.stdout).readline() for _ in range(50)]
    assert read_so_far(page) < A_PART
    not_none(page.stdout).close()
    assert page.wait(60) == 141
    assert not_none(page.stderr).read() == b""
    assert all(re.match(rb"worker:[01] \| a line", line) for line in first)
    last = distrun.start("logs", "-n", "10000", stdout=subprocess.PIPE)
    begun = not_none(last.stdout).readline()
    assert read_so_far(last) < A_PART
    assert (begun + not_none(last.stdout).read()).count(b"\n") == 10_000


def read_so_far(process: subprocess.Popen[bytes]) -> int:
    """The bytes that a process has read from files, while it waits for its pipe to be read."""
    return psutil.Process(process.pid).io_counters().read_chars
