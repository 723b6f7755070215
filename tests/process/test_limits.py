"""Jobs whose surroundings lack something or fail: descriptors, processes, /proc, disks, clocks."""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.command import Distrun, recorded_events
from harness.parts.records import JobFolder, connect
from harness.processes import captured
from harness.requirements import AS_ROOT, skip
from harness.tables import read_program
from harness.values import not_none
from harness.waiting import wait_until

OPEN_FILES = "raise the limit on open files (`ulimit -n`)"
NO_PROC = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


def test_many_descriptors_may_be_open(distrun: Distrun, capfd: pytest.CaptureFixture[str]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave_open() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for number in range(3, 1200):
            os.dup2(0, number)

    def finish(*args: str | Path) -> int:
        return distrun.start(*args, preexec_fn=leave_open, close_fds=False).wait(60)

    assert finish("launch", distrun.write_spec("exit 3")) == 3
    assert finish("launch", "-d", distrun.write_spec("exec sleep 600")) == 0
    assert finish("kill") == 0
    assert "Traceback" not in capfd.readouterr().err


def test_without_proc_a_job_is_refused_and_a_running_one_not_called_lost(distrun: Distrun) -> None:
    if os.geteuid() != 0 or captured([*NO_PROC, "true"]).returncode:
        skip("hiding /proc needs root", AS_ROOT)
    job = distrun.detached("exec sleep 1000")
    try:
        spec = distrun.cwd / "job.yaml"
        for words in (("launch", spec), ("kill", job)):
            done = captured([*NO_PROC, *distrun.argv, *words])
            assert done.returncode == 69
            assert "distrun: /proc is not mounted\n  mount it" in done.stderr
        assert len(list(distrun.home.glob("jobs/*"))) == 1
        assert distrun.status()["state"] == "running"
    finally:
        assert distrun("kill", job).returncode == 0


TOO_LITTLE = {
    "ulimit -n 26": OPEN_FILES, "ulimit -n 5": OPEN_FILES,
    "ulimit -v 30000": "raise the limit on memory",
    "ulimit -f 0": "raise the limit on the size of files",
}  # fmt: skip


def test_too_low_limits(distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands find out what they lack before they begin."""
    distrun.write_spec("true", workers=1)
    assert distrun("launch", "--name", "ended", "job.yaml").returncode == 0
    assert distrun("bundle", "-o", "in.tar.gz").returncode == 0
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    there = sorted(tmp_path.rglob("*"))

    def limited(limit: str, line: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", f'{limit}; exec "$@"', "sh", *distrun.argv, *line.split()]
        done = captured(words)
        assert "Traceback" not in done.stderr, line
        return done

    for limit, advice in TOO_LITTLE.items():
        done = limited(limit, "launch job.yaml")
        assert done.returncode == 69, (limit, done.stderr)
        assert done.stderr.startswith("distrun: "), limit
        assert f"\n  {advice}" in done.stderr, limit
        assert len(done.stderr.splitlines()) == 2, done.stderr
        assert sorted(tmp_path.rglob("*")) == there, limit
    for line in ("launch job.yaml", "report in.tar.gz -o x.html", "logs -f ended"):
        assert OPEN_FILES not in limited("ulimit -n 27", line).stderr, line
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def pids_cgroup() -> Iterator[Path]:
    parents = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]
    parent = next((each for each in parents if (each / "cgroup.procs").exists()), parents[0])
    folder = parent / f"distrun-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        skip("limiting processes needs a cgroup", AS_ROOT)
    try:
        if not (folder / "pids.max").exists():
            skip("limiting processes needs a cgroup", AS_ROOT)
        yield folder
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), what="no process left")
    finally:
        folder.rmdir()


@pytest.mark.parametrize("limit", [2, 3, 5, 7])
def test_too_few_processes_are_told(limit: int, distrun: Distrun, pids_cgroup: Path) -> None:
    """What cannot be created: a thread, the supervisor, the agent's guard, a task."""
    (pids_cgroup / "pids.max").write_text(str(limit))
    enter = f'echo $$ > {pids_cgroup}/cgroup.procs; exec "$@"'
    spec = distrun.write_spec("exec sleep 1000")
    done = captured(["sh", "-c", enter, "sh", *distrun.argv, "launch", spec])
    assert done.returncode == 69, done.stderr
    assert "a limit on processes is reached" in done.stderr
    assert "check `program`" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_that_exits_because_its_output_has_no_room_is_told_so(
    distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exits 1 without a word: its words have no room either."""
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk / "home"))
    spec = distrun.write_spec("head -c 30000000 /dev/zero | tr '\\0' x; exit 1")
    done = distrun("launch", spec)
    assert done.returncode == 69
    assert "(disk_full)" in done.stderr


def test_many_commands_wait_for_a_job_that_inherits_a_low_limit(distrun: Distrun) -> None:
    """The supervisor raises its limit as far as it may; its tasks have the inherited one."""
    spec = distrun.write_spec("ulimit -n; exec sleep 1000", workers=1)
    wrapper = ["prlimit", "--nofile=40:1000", *distrun.argv]
    done = captured([*wrapper, "launch", "-d", spec])
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    folder = JobFolder(distrun.home / "jobs" / job)
    channels = [connect(folder) for _ in range(100)]
    assert "not answered" not in distrun.checked("kill", job).stderr
    for channel in channels:
        not_none(channel).close()
    assert distrun("wait", job).returncode == 137
    wait_until(lambda: distrun.asked("logs", job) == "worker:0 | 40\n")


SOON = {"max": 3, "backoff": "50ms"}


def test_a_job_continues_without_a_record_until_a_restart_fails(distrun: Distrun) -> None:
    script = "echo before; until test -e go; do sleep 0.02; done; touch ended; exit 1"
    spec = distrun.write_spec(script, workers=1, restart=SOON)
    launch = distrun.start(
        "launch", spec, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert not_none(launch.stdout).readline() == "worker:0 | before\n"
    logs = distrun.start("logs", "-f", stdout=-1, text=True)
    assert not_none(logs.stdout).readline() == "worker:0 | before\n"
    shutil.rmtree(distrun.home / "jobs")
    (distrun.cwd / "go").touch()
    for shown in (logs, launch):
        output, said = shown.communicate(timeout=60)
        assert (shown.returncode, output) == (69, ""), said
    assert "was removed while the job ran; output since then is not shown" in said
    assert "could not be started" in said
    assert "Traceback" not in said
    assert (distrun.cwd / "ended").exists()


WITH_JUMPING_CLOCK = """
import itertools, time
real, jumps = time.time, itertools.cycle((0, -86400, 86400, -3600))
time.time = lambda: real() + next(jumps)
from distrun.__main__ import main
main()
"""


def test_a_clock_that_jumps_moves_no_deadline(distrun: Distrun) -> None:
    """By a day with every look at it; backoff and timeouts go by another clock."""
    spec = distrun.write_spec(
        "test $DISTRUN_ATTEMPT = 1 || exit 3",
        restart={"max": 1, "backoff": "300ms"},
        timeouts={"run": "1h", "stall": "1h"},
    )
    words = [sys.executable, "-c", WITH_JUMPING_CLOCK, "launch", str(spec)]
    done = captured(words, cwd=distrun.cwd)
    assert done.returncode == 0, done.stderr
    record = recorded_events(distrun)
    times = [event["at"] for event in record]
    assert times != sorted(times), "it did not jump"
    assert all(event["lived_seconds"] >= 0 for event in record if event["event"] == "TaskExited")
    assert {task["attempt"] for task in distrun.status()["tasks"]} == {1}


def test_a_full_disk(distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    script = "trap '' PIPE; while :; do echo some output; done 2>/dev/null"
    done = distrun.launch(script, restart=SOON)
    assert done.returncode == 69, done.stderr
    job = distrun.status()
    assert (job["state"], job["exit_code"]) == ("failed", 69), "its record tells of its end"
    assert re.search(r"is full|No space left", job["outcome"]["cause"])
    assert distrun("wait").returncode == 69


def test_a_job_that_cannot_be_created_leaves_nothing(
    distrun: Distrun, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk))
    spec = distrun.write_spec("true")
    for inodes in (2, 5, 9):
        remount = f"remount,nr_inodes={inodes}"
        subprocess.run(["mount", "-o", remount, str(small_disk)], check=True)
        said = distrun.told(69, "launch", spec)
        assert "No space left on device" in said
        if "cannot be created" in said:
            assert not list(small_disk.glob("jobs/*"))
        else:  # there was room for the record
            assert distrun("wait").returncode == 69
        for path in small_disk.iterdir():
            shutil.rmtree(path)


RECORDED = read_program("recorded.py")


def test_plan_verdict_and_end_are_synced_and_the_end_before_it_is_told(distrun: Distrun) -> None:
    """Each attempt waits for what is synced because of the event before it."""
    calls = distrun.cwd / "calls"
    distrun.argv = (sys.executable, "-c", RECORDED, str(calls))  # type: ignore[assignment]
    wait = "until sed -n '/{}/,$p' calls | grep -q '{}'; do sleep 0.05; done; "
    planned = wait.format("JobPlanned", "synced jobs")
    script = f"if test $DISTRUN_ATTEMPT = 0; then {planned} exit 3; fi; "
    script += wait.format("written VerdictReached", "synced events")
    spec = distrun.write_spec(script, 1, restart={"max": 1, "backoff": "10ms"})
    distrun.checked("launch", spec, stdin=None)
    lines = calls.read_text().splitlines()
    (folder,) = (distrun.home / "jobs").iterdir()
    lasting = {"spec.yaml", "spec.json", "plan.json", "events.jsonl", "token", folder.name, "jobs"}
    of_plan = lines[lines.index("written JobPlanned") : lines.index("written VerdictReached")]
    assert lasting == {each.removeprefix("synced ") for each in of_plan if "synced " in each}
    end = lines[lines.index("written JobEnded") :]
    assert end.index("synced events.jsonl") < end.index("told JobEnded")
