"""`distrun logs`: a part of the output, 100 MB of output, and progress bars in it."""

from __future__ import annotations

import re
import subprocess
import time
from datetime import datetime
from pathlib import Path

import psutil

from distrun.agent.protocol import INDEX_RECORD
from harness.command import Distrun
from harness.values import not_none
from harness.waiting import wait_until

A_PART = 30_000_000
LINES = 900_000  # of 56 bytes, twice: 100 MB
MUCH = f'yes "a line of ordinary length, written again and again ......" | head -n {LINES}'


def test_grep_since_and_timestamps(distrun: Distrun) -> None:
    began = time.time()
    script = (
        'echo "loss 0.5 of $DISTRUN_TASK"; echo other; printf "\\033[31mloss\\033[0m 0.4\\n"; '
        'touch "up-$DISTRUN_TASK"; until test -e go; do sleep 0.02; done; echo "later loss"'
    )
    distrun.detached(script)
    wait_until(lambda: len(list(distrun.cwd.glob("up-*"))) == 2, timeout=30)
    wait_until(lambda: all(map(is_known, distrun.home.glob("jobs/*/logs/*.log"))), timeout=30)
    between = time.time()
    (distrun.cwd / "go").touch()
    assert distrun("wait").returncode == 0
    found = distrun("logs", "--grep", r"^loss 0\.[45]").stdout.splitlines()
    assert sorted(found) == [
        "worker:0 | loss 0.4",
        "worker:0 | loss 0.5 of worker:0",
        "worker:1 | loss 0.4",
        "worker:1 | loss 0.5 of worker:1",
    ]
    last = distrun("logs", "--grep", "loss", "-n", "1", "-t", "worker:1").stdout
    assert last == "worker:1 | later loss\n"
    stamped = distrun("logs", "--timestamps", "-t", "worker:0").stdout.splitlines()
    times = [datetime.fromisoformat(line.split()[0]).timestamp() for line in stamped]
    assert all(began - 1 < at < between for at in times[:-1])
    assert between - 0.001 < times[-1] < time.time() + 1  # shown to a millisecond
    assert [line.split(" ", 1)[1] for line in stamped][-1] == "worker:0 | later loss"
    assert distrun("logs", "--since", "1h").stdout.count("\n") == 8
    assert distrun("logs", "--since", "1ms").stdout == ""
    ago = time.time() - between
    assert "other" not in distrun("logs", "--since", f"{ago:.3f}s", "--grep", ".").stdout
    assert distrun("logs", "--grep", "(" * 3000).returncode == 2
    wrong = distrun("logs", "--grep", "(")
    assert wrong.returncode == 2
    assert "regular expression" in wrong.stderr


def is_known(log: Path) -> bool:
    """Whether the index covers the whole log."""
    records = log.with_suffix(".idx").read_bytes()
    return (
        bool(records)
        and INDEX_RECORD.unpack(records[-INDEX_RECORD.size :])[1] == log.stat().st_size
    )


def test_the_first_and_the_last_page_read_only_a_part_of_100_mb(distrun: Distrun) -> None:
    spec = distrun.write_spec(MUCH)
    done = distrun("launch", spec, stdout=subprocess.DEVNULL, timeout=250)
    assert done.returncode == 0
    size = sum(path.stat().st_size for path in distrun.home.rglob("*.log"))
    assert size > 100_000_000
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
