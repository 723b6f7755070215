"""The tables of docs/failures.md with real processes: each row in which something happens."""

from __future__ import annotations

import pytest

from harness.command import Distrun, Status
from harness.failures_page import Row, restart_rows, success_rows
from harness.waiting import wait_until

ENDS = [row for row in success_rows() if row.outcome != "continues"]
REFUSED = [row for row in restart_rows() if row.outcome.startswith("fails")]
RESTARTED = [row for row in restart_rows() if row.restarted]


def write_job(distrun: Distrun, row: Row) -> list[str]:
    """Write a job whose tasks exit in the row's order; those that do not exit, sleep.

    Returns the arguments of its launch.
    """
    exits = [
        f"{task}) while ! test -e step-{step}; do sleep 0.01; done; "
        f"touch step-{step + 1}; exit {code};;"
        for step, (task, code) in enumerate(row.exits)
    ]
    script = (
        'if [ "$DISTRUN_ATTEMPT" != 0 ]; then touch again-$DISTRUN_TASK; exec sleep 600; fi; '
        f"case $DISTRUN_TASK in {' '.join(exits)} *) exec sleep 600;; esac"
    )
    (distrun.cwd / "job.yaml").write_text(row.yaml(["sh", "-c", script]))
    backoff = ["--set", "restart.backoff=10ms"] if row.restart else []
    return ["job.yaml", *backoff, "--set", "timeouts.grace=100ms"]


def launch(distrun: Distrun, row: Row) -> tuple[str, str]:
    """Run the job of a row; how it ended, and what launch said."""
    arguments = write_job(distrun, row)
    (distrun.cwd / "step-0").touch()
    done = distrun("launch", *arguments)
    how = "succeeds" if done.returncode == 0 else f"fails with {done.returncode}"
    return how, done.stderr


@pytest.mark.parametrize("row", ENDS, ids=str)
def test_who_decides(distrun: Distrun, row: Row) -> None:
    how, said = launch(distrun, row)
    assert how == row.outcome, said


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_what_is_not_restarted(distrun: Distrun, row: Row) -> None:
    how, said = launch(distrun, row)
    assert how == row.outcome, said
    assert f"not restarted: {row.reason}" in said or not row.reason
    assert row.reason in distrun("status").stdout


@pytest.mark.parametrize("row", RESTARTED, ids=str)
def test_what_starts_again(distrun: Distrun, row: Row, status: Status) -> None:
    done = distrun("launch", "-d", *write_job(distrun, row))
    assert done.returncode == 0, done.stderr
    (distrun.cwd / "step-0").touch()
    wait_until(lambda: all((distrun.cwd / f"again-{name}").exists() for name in row.restarted))
    attempts = {task["task"]: task["attempt"] for task in status()["tasks"]}
    assert {name for name, attempt in attempts.items() if attempt} == set(row.restarted)
    assert distrun("kill").returncode == 0
