"""Jobs whose surroundings lack something: descriptors, processes, /proc, room on a disk."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distrun.job.control import connect
from distrun.job.folder import JobFolder
from harness.command import Detach, Distrun, Status, WriteSpec
from harness.requirements import AS_ROOT, skip
from harness.waiting import wait_until

OPEN_FILES = "raise the limit on open files (`ulimit -n`)"
PROCESSES = "raise the limit on processes (`ulimit -u`, or pids.max of the cgroup)"
NO_PROC = 'mount -t tmpfs none /proc && exec "$@"'


def run(*command: Any) -> subprocess.CompletedProcess[str]:
    argv = list(map(str, command))
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def without_proc(*command: Any) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0 or run("unshare", "-m", "sh", "-c", NO_PROC, "sh", "true").returncode:
        skip("hiding /proc needs root", AS_ROOT)
    return run("unshare", "-m", "sh", "-c", NO_PROC, "sh", *command)


def test_a_caller_may_leave_many_descriptors_open(
    distrun: Distrun, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_without_proc_a_job_is_refused_and_a_running_one_not_called_lost(
    distrun: Distrun, detached: Detach, status: Status, distrun_home: Path
) -> None:
    job = detached("exec sleep 1000")
    try:
        spec = distrun.cwd / "job.yaml"
        for words in (("launch", spec), ("kill", job)):
            done = without_proc(*distrun.argv, *words)
            assert done.returncode == 69
            assert "distrun: /proc is not mounted\n  mount it" in done.stderr
        assert len(list(distrun_home.glob("jobs/*"))) == 1
        assert status()["state"] == "running"
    finally:
        assert distrun("kill", job).returncode == 0


NEEDY = ("launch job.yaml", "report in.tar.gz -o x.html", "logs -f ended")
"""Commands that open the most, or a file of another kind."""
TOO_LITTLE = {
    "ulimit -n 26": OPEN_FILES,
    "ulimit -n 5": OPEN_FILES,
    "ulimit -v 30000": "raise the limit on memory",
}


def test_each_command_says_what_it_lacks_or_works_and_leaves_nothing(
    distrun: Distrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands find out what they lack before they begin."""
    distrun.write_spec("true", workers=1)
    assert distrun("launch", "--name", "ended", "job.yaml").returncode == 0
    assert distrun("bundle", "-o", "in.tar.gz").returncode == 0
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    there = sorted(tmp_path.rglob("*"))

    def limited(limit: str, line: str) -> subprocess.CompletedProcess[str]:
        done = run("sh", "-c", f'{limit}; exec "$@"', "sh", *distrun.argv, *line.split())
        assert "Traceback" not in done.stderr, line
        return done

    for limit, advice in TOO_LITTLE.items():
        done = limited(limit, "launch job.yaml")
        assert done.returncode == 69, (limit, done.stderr)
        assert done.stderr.startswith("distrun: "), limit
        assert f"\n  {advice}" in done.stderr, limit
        assert len(done.stderr.splitlines()) == 2, done.stderr
        assert sorted(tmp_path.rglob("*")) == there, limit
    for line in NEEDY:
        assert OPEN_FILES not in limited("ulimit -n 27", line).stderr, line
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def pids_cgroup() -> Iterator[Path]:
    """A cgroup whose pids.max can be set."""
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
def test_too_few_processes_are_told_as_that(
    limit: int, distrun: Distrun, write_spec: WriteSpec, pids_cgroup: Path
) -> None:
    """What cannot be created: a thread, the supervisor, the agent's guard, a task."""
    (pids_cgroup / "pids.max").write_text(str(limit))
    enter = f'echo $$ > {pids_cgroup}/cgroup.procs; exec "$@"'
    spec = write_spec("exec sleep 1000")
    done = run("sh", "-c", enter, "sh", *distrun.argv, "launch", spec)
    assert done.returncode == 69, done.stderr
    assert "a limit on processes is reached" in done.stderr
    assert PROCESSES in done.stderr
    assert "check `program`" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_that_exits_because_its_output_has_no_room_is_told_so(
    distrun: Distrun, write_spec: WriteSpec, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exits 1 without a word: its words have no room either."""
    monkeypatch.setenv("DISTRUN_HOME", str(small_disk / "home"))
    spec = write_spec("head -c 30000000 /dev/zero | tr '\\0' x; exit 1")
    done = distrun("launch", spec)
    assert done.returncode == 69
    assert "(disk_full)" in done.stderr


def test_many_commands_wait_for_a_job_that_inherits_a_low_limit(
    distrun: Distrun, write_spec: WriteSpec, distrun_home: Path
) -> None:
    """The supervisor raises its limit as far as it may; its tasks have the inherited one."""
    spec = write_spec("ulimit -n; exec sleep 1000", workers=1)
    wrapper = ["prlimit", "--nofile=40:1000", *distrun.argv]
    done = run(*wrapper, "launch", "-d", spec)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    folder = JobFolder(distrun_home / "jobs" / job)
    channels = [connect(folder) for _ in range(100)]
    killed = distrun("kill", job)
    assert killed.returncode == 0
    assert "not answered" not in killed.stderr
    for channel in channels:
        assert channel is not None
        channel.close()
    assert distrun("wait", job).returncode == 137
    wait_until(lambda: distrun.asked("logs", job) == "worker:0 | 40\n")
