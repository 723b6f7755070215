"""Eight rows of docs/failures-reference.md with real processes; tests/unit runs all without."""

from __future__ import annotations

import pytest

from harness.command import Distrun
from harness.failures_page import Row, restart_rows, success_rows
from harness.waiting import wait_until

ROWS = {str(row): row for row in [*success_rows(), *restart_rows()]}
ENDS = (
    "multi_worker_mirrored  strategy 1worker+1evaluator worker:0=0",
    "parameter_server  all 1chief+1worker+1ps+1evaluator chief:0=0+evaluator:0=0",
    "parameter_server  strategy 1chief+1worker+1ps ps:0=0",
    "mirrored  strategy 1worker worker:0=139 {on: [130, 137, 138, 143]}",
    "multi_worker_mirrored  strategy 2worker+1evaluator worker:1=1 {}never",
)
RESTARTED = (
    "parameter_server  strategy 1chief+2worker+1ps worker:1=0 {}",
    "parameter_server  strategy 1chief+2worker+1ps ps:0=1 {}",
    "multi_worker_mirrored  strategy 2worker+1evaluator worker:1=137 {}{on: [130-255]}",
)


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


@pytest.mark.parametrize("name", ENDS)
def test_who_decides_and_what_is_not_restarted(distrun: Distrun, name: str) -> None:
    row = ROWS[name]
    arguments = write_job(distrun, row)
    (distrun.cwd / "step-0").touch()
    done = distrun("launch", *arguments)
    how = "succeeds" if done.returncode == 0 else f"fails with {done.returncode}"
    assert how == row.outcome, done.stderr
    assert f"not restarted: {row.reason}" in done.stderr or not row.reason
    assert row.reason in distrun("status").stdout


@pytest.mark.parametrize("name", RESTARTED)
def test_what_starts_again(distrun: Distrun, name: str) -> None:
    row = ROWS[name]
    done = distrun("launch", "-d", *write_job(distrun, row))
    assert done.returncode == 0, done.stderr
    (distrun.cwd / "step-0").touch()
    wait_until(lambda: all((distrun.cwd / f"again-{name}").exists() for name in row.restarted))
    attempts = {task["task"]: task["attempt"] for task in distrun.status()["tasks"]}
    assert {name for name, attempt in attempts.items() if attempt} == set(row.restarted)
    assert distrun("kill").returncode == 0
