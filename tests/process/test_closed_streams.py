"""Commands whose standard streams are closed, or on a full disk."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from harness.command import Distrun

CLOSED = "distrun: standard output is closed\n"
FULL = "distrun: standard output cannot be written: No space left on device\n"
PRINTING = (
    *("--help", "plan job.yaml", "ps -a --json", "status", "logs", "init -o - mirrored"),
    *("schema", "clean -n", "completion bash"),
)
"""Commands of which the output is all that they are for."""
REPORTING = {
    "wait": (3, "exit code 3, worker:0's own"),
    "bogus": (2, "No such command"),
}
"""Commands whose exit code is the answer, that code, and a part of what they print on stderr."""


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


def test_output_that_cannot_be_written_is_an_error(failed: Distrun) -> None:
    for command in PRINTING:
        faults = ((">&-", CLOSED), (">/dev/full", FULL))
        for lost, why in faults if command == "logs" else faults[1:]:
            code, shown, told = run(failed, command, lost)
            assert (code, shown, told[-len(why) :]) == (69, "", why), command
            assert "Traceback" not in told
    for lost in (">&- 2>&-", ">/dev/full 2>/dev/full"):
        assert run(failed, "ps -a", lost) == (69, "", "")
    assert run(failed, "ps -a", "<&- >&-") == (69, "", CLOSED)
    for silent in ("<&- 2>&-", "2>/dev/full"):
        assert run(failed, "logs", silent) == (0, "worker:0 | hello\n", "")


def test_a_command_that_prints_no_output_does_not_need_it(failed: Distrun) -> None:
    for command, (code, part) in REPORTING.items():
        ended, shown, told = run(failed, command, ">&-")
        assert (ended, shown) == (code, "")
        assert part in told
        assert "Traceback" not in told
        for nothing in ("<&- >&- 2>&-", "2>/dev/full"):
            assert run(failed, command, nothing) == (code, "", "")


@pytest.mark.parametrize("redirections", [">/dev/full", "<&- >&- 2>&-"])
def test_a_job_runs_to_its_end_without_its_output(distrun: Distrun, redirections: str) -> None:
    distrun.write_spec("seq 100000; sleep 0.3; seq 9; exit 3", workers=1)
    code, shown, told = run(distrun, "launch job.yaml", redirections)
    assert (code, shown) == (3, "")
    job = distrun.status()
    assert (job["state"], job["outcome"]["exit_code"]) == ("failed", 3)
    assert distrun("logs").stdout.startswith("worker:0 | 1\n")
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


def test_no_file_of_a_job_gets_the_number_of_a_closed_stream(distrun: Distrun) -> None:
    """Neither the command's own words nor the tasks' output are written into its files."""
    distrun.write_spec("ls -l /proc/self/fd; echo text >&2", workers=1)
    assert run(distrun, "launch job.yaml", "<&- 2>&-")[0] == 0
    job = next((distrun.home / "jobs").iterdir())
    assert (job / "events.jsonl").read_text().endswith("}\n")
    assert all(line[0] == "{" for line in (job / "events.jsonl").read_text().splitlines())
    assert (job / "supervisor.log").read_text() == ""
    assert "text" in (job / "logs" / "worker-0.log").read_text()
