"""`logs.max_size`: a task's oldest output is given back to the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distrun.agent.linux import holes, syscalls
from distrun.agent.protocol import Cause, Code, LogData
from distrun.logs import Follower, TaskLog, View, merged
from distrun.supervisor import line_search
from distrun.supervisor.hosts.log_mirror import LogMirror
from harness.command import Distrun
from harness.requirements import AS_ROOT, skip
from harness.values import not_none
from harness.waiting import wait_until

LIMIT = {"max_size": "300KB"}
EXCESS = 64 * 1024
# Pauses while it prints, so that its log is limited before it has ended.
LINES = 'for i in 1 2 3 4; do seq -f "line %08.0f of the task" "$i"0000 "$i"9999; sleep 0.3; done'


def on_disk(path: str | Path) -> int:
    return os.stat(path).st_blocks * 512


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
    launched = distrun.launch(LINES, 1, logs=LIMIT)
    assert launched.returncode == 0, launched.stderr
    assert len(numbers(launched.stdout)) == 40_000
    assert not dropped_in(launched.stderr)
    log = distrun.status()["tasks"][0]["log"]
    size = os.stat(log).st_size
    assert size == 40_000 * 26
    assert 300_000 <= on_disk(log) <= 300_000 + EXCESS + 4096

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
    every = distrun("logs", "-n", "99999")
    assert numbers(every.stdout) == kept
    assert len(dropped_in(every.stderr)) == 1
    assert numbers(distrun("logs", "--since", "1h", "--timestamps").stdout) == kept
    assert numbers(distrun("logs", "--until", "0s", "--raw").stdout) == kept
    found = distrun("logs", "--grep", "9 of", "-t", "worker")
    assert numbers(found.stdout) == [each for each in kept if each % 10 == 9]
    assert len(dropped_in(found.stderr)) == 1
    rows = [json.loads(line) for line in distrun("logs", "--json").stdout.splitlines()]
    assert numbers("\n".join(row["line"] for row in rows)) == kept
    followed = distrun("logs", "-f")
    assert numbers(followed.stdout) == kept
    assert len(dropped_in(followed.stderr)) == 1
    several = distrun("logs", "--all-jobs", "-n", "2")
    assert numbers(several.stdout) == kept[-2:]


def test_a_log_that_fits_says_nothing(distrun: Distrun) -> None:
    distrun.launch("echo one", 1, logs=LIMIT)
    shown = distrun("logs")
    assert (shown.stdout, shown.stderr) == ("worker:0 | one\n", "")


def test_the_limit_is_for_all_attempts_and_the_verdict_reads_what_is_kept(distrun: Distrun) -> None:
    script = f"{LINES}; echo 'ValueError: no such thing' >&2; exit 3"
    spec = distrun.write_spec(
        script, 1, logs={"max_size": "70KB"}, restart={"max": 1, "backoff": "0s"}
    )
    launched = distrun("launch", spec)
    assert launched.returncode == 3, launched.stderr
    assert "ValueError: no such thing" in launched.stderr
    log = distrun.status()["tasks"][0]["log"]
    assert os.stat(log).st_size > 80_000 * 26
    assert on_disk(log) <= 70_000 + EXCESS + 4096
    assert "\0" not in launched.stderr
    shown = distrun("logs")
    assert len(dropped_in(shown.stderr)) == 1
    assert "--- attempt 1" not in shown.stdout


def test_a_reader_that_is_overtaken_shows_whole_lines_and_says_what_is_missing(
    distrun: Distrun,
) -> None:
    go = distrun.cwd / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; {LINES}"
    launch = distrun.start(
        "launch", distrun.write_spec(script, 1, logs=LIMIT), stdout=-1, stderr=-1
    )
    wait_until(lambda: distrun("ps", "--json").stdout.count("job_id") == 1)
    follow = distrun.start("logs", "-f", stdout=-1, stderr=-1)
    wait_until(lambda: "logs" in not_none(_cmdline(follow.pid)))
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


def _cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_write_never_waits_and_a_line_that_is_cut_is_not_shown(tmp_path: Path) -> None:
    """A hole may begin anywhere in a line."""
    log = TaskLog("worker:0", str(tmp_path / "worker-0.log"), str(tmp_path / "worker-0.idx"))
    lines = [b"%06d %s\n" % (number, b"x" * (number % 97)) for number in range(20_000)]
    Path(log.path).write_bytes(b"".join(lines))
    view = View([log.task], raw=True)
    for dropped in range(holes.STEP, 800_000, holes.STEP):
        with open(log.path, "r+b") as file:
            syscalls.punch_start(file.fileno(), dropped)
        reported: list[tuple[str, int]] = []
        shown = b"".join(merged([log], view, on_dropped=lambda *args, to=reported: to.append(args)))
        first = int(shown[:6])
        assert shown == b"".join(lines[first:])
        assert len(b"".join(lines[:first])) - dropped < 110
        assert reported == [("worker:0", len(b"".join(lines[:first])))]
        follower = Follower([log], view)
        assert b"".join(follower.finish()) == shown
        assert follower.dropped == {"worker:0": reported[0][1]}
        follower.close()


def test_zeros_that_a_task_prints_are_no_hole(tmp_path: Path) -> None:
    log = TaskLog("worker:0", str(tmp_path / "worker-0.log"), str(tmp_path / "worker-0.idx"))
    Path(log.path).write_bytes(b"a\n" + b"\0" * 200_000 + b"\nb\n")
    assert b"".join(merged([log], View([log.task]))).count(b"\n") == 3


def test_terabytes_of_dropped_output_are_not_read(tmp_path: Path) -> None:
    log = TaskLog("worker:0", str(tmp_path / "worker-0.log"), str(tmp_path / "worker-0.idx"))
    with open(log.path, "wb") as file:
        file.truncate(1 << 42)
        file.seek(0, 2)
        file.write(b"rest\nlast\n")
    for last in (None, 1, 100):
        shown = b"".join(merged([log], View([log.task]), last=last))
        assert shown == b"worker:0 | last\n"
    code = "from distrun.supervisor.line_search import *; wait_for_line(0, 0, '^last')"
    with open(log.path, "rb") as stdin:
        subprocess.run([sys.executable, "-c", code], stdin=stdin, check=True, timeout=60)


def test_a_search_for_a_line_finds_an_attempt_whose_beginning_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n" * 50_000)
    writer = os.open(path, os.O_RDWR | os.O_APPEND)
    pause = time.sleep

    def overtake(_: float) -> None:
        """The attempt prints more than is kept, at once."""
        monkeypatch.setattr(time, "sleep", pause)
        os.write(writer, b"new\n" * 90_000 + b"ready\n")
        syscalls.punch_start(writer, holes.STEP * 7)

    monkeypatch.setattr(time, "sleep", overtake)
    line_search.wait_for_line(writer, path.stat().st_size, "^ready")
    os.close(writer)


def test_a_copy_has_the_same_limit_and_follows_a_host_that_dropped_what_it_had_not_sent(
    tmp_path: Path,
) -> None:
    mirror = LogMirror(tmp_path, 100_000)
    mirror.add("worker-0.log")
    line = b"%07d\n"
    text = b"".join(line % number for number in range(200_000))
    sent = 0
    for start in (0, 32_768, 65_536, 98_304, 131_072, 163_840, 1_048_576, 1_081_344):
        assert mirror.write(LogData("worker-0.log", start, text[start : start + 32_768]))
        sent = start + 32_768
        assert mirror.sizes["worker-0.log"] == sent
        assert on_disk(tmp_path / "worker-0.log") <= 100_000 + EXCESS + 4096
    log = TaskLog("worker:0", str(tmp_path / "worker-0.log"), str(tmp_path / "worker-0.idx"))
    shown = b"".join(merged([log], View([log.task], raw=True)))
    assert text[:sent].endswith(shown)
    assert len(shown) == 65_536 - 8  # the host's part after the gap, without its first line
    assert not mirror.write(LogData("worker-0.log", 1 << 70, b"x"))
    assert not_none(mirror.failure).code is Code.LOG_COPY_NOT_WRITTEN


def test_a_copy_without_a_limit_has_no_gap(tmp_path: Path) -> None:
    mirror = LogMirror(tmp_path)
    mirror.add("worker-0.log")
    assert not mirror.write(LogData("worker-0.log", 1, b"x"))
    assert mirror.failure == Cause(Code.LOG_PART_MISSING, path="worker-0.log")


@pytest.mark.parametrize("command", ["launch", "plan", "doctor"])
def test_a_file_system_that_cannot_free_the_start_of_a_file_is_refused_before_a_start(
    distrun: Distrun, command: str
) -> None:
    """ramfs has no holes."""
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        skip("it needs namespaces of mounts", AS_ROOT)
    home = distrun.cwd / "home"
    home.mkdir()
    started = distrun.cwd / "started"
    spec = distrun.write_spec(f"touch {started}", 1, logs=LIMIT)
    mount = 'mount -t ramfs -o mode=0700 none "$0" && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, str(home), *distrun.argv, command, str(spec)],
        env={**os.environ, "DISTRUN_HOME": str(home), "TMPDIR": str(home)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 69, done.stderr
    said = " ".join(done.stderr.split())
    assert "logs.max_size cannot limit the logs in " in said
    assert "Operation not supported" in said
    assert f"{os.uname().nodename}: " in said
    assert "set DISTRUN_HOME to a folder on a file system that can, such as ext4" in said
    assert "or remove logs.max_size" in said
    assert not started.exists()


def test_the_limit_is_in_the_record_of_a_detached_job(distrun: Distrun) -> None:
    job = distrun.detached("echo one", logs=LIMIT, workers=1)
    assert distrun("wait", job).returncode == 0
    created = json.loads(distrun("events", "--json").stdout.splitlines()[0])
    assert '"log_max_size_bytes": 300000' in json.dumps(created)
