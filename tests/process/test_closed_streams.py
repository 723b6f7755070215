"""Commands whose standard streams are closed, or on a full disk."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from harness.command import Distrun

CLOSED = "distrun: standard output is closed\n"
FULL = "distrun: standard output cannot be written: No space left on device\n"
PRINTING = ("--help", "logs")
"""Commands of which the output is all that they are for."""


@pytest.fixture
def failed(distrun: Distrun) -> Distrun:
    """A job that has failed with exit code 3."""
    assert distrun.launch("echo hello; exit 3", workers=1).returncode == 3
    return distrun


def run(distrun: Distrun, command: str, redirections: str) -> tuple[int, str, str]:
    """The exit code, and what was printed to those of stdout and stderr that are not redirected."""
    line = f"{shlex.join(distrun.argv)} {command} {redirections}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=distrun.cwd, capture_output=True, text=True, timeout=120,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_output_that_cannot_be_written_is_an_error_where_it_is_the_answer(failed: Distrun) -> None:
    for command in PRINTING:
        code, shown, told = run(failed, command, ">/dev/full")
        assert (code, shown, told[-len(FULL) :]) == (69, "", FULL), command
        assert "Traceback" not in told
    assert run(failed, "ps -a", ">&- 2>&-") == (69, "", "")
    assert run(failed, "logs", "<&- >&-") == (69, "", CLOSED)
    assert run(failed, "logs", "<&- 2>&-") == (0, "worker:0 | hello\n", "")
    code, shown, told = run(failed, "wait", ">&-")
    assert (code, shown) == (3, "")
    assert "exit code 3, worker:0's own" in told
    assert run(failed, "bogus", "2>/dev/full") == (2, "", "")


@pytest.mark.parametrize("redirections", [">/dev/full", "<&- >&- 2>&-"])
def test_a_job_runs_to_its_end_without_its_output(distrun: Distrun, redirections: str) -> None:
    """Neither the command's own words nor the tasks' output are written into the job's files."""
    distrun.write_spec("seq 100000; sleep 0.3; ls -l /proc/self/fd; exit 3", workers=1)
    code, shown, told = run(distrun, "launch job.yaml", redirections)
    assert (code, shown) == (3, "")
    job = distrun.status()
    assert (job["state"], job["outcome"]["exit_code"]) == ("failed", 3)
    assert distrun.asked("logs").startswith("worker:0 | 1\n")
    folder = distrun.home / "jobs" / job["job_id"]
    assert all(line[0] == "{" for line in (folder / "events.jsonl").read_text().splitlines())
    assert (folder / "supervisor.log").read_text() == ""
    if "2>" in redirections:
        assert told == ""
        return
    line = f"{FULL[:-1]}; the tasks' output is in the logs: distrun logs {job['job_id']}"
    assert told.splitlines().count(line) == 1
    assert told.splitlines()[-1] == "distrun: exit code 3, worker:0's own"


def test_a_detached_job_is_started_although_its_id_is_not_printed(distrun: Distrun) -> None:
    distrun.write_spec("exec sleep 600", workers=1)
    code, _, told = run(distrun, "launch -d job.yaml", ">/dev/full")
    assert code == 0
    job = distrun.status()
    assert job["state"] == "running"
    assert f"job {job['job_id']} was started, but its id was not printed" in told
    assert distrun("kill").returncode == 0
