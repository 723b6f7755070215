"""The tables of docs/failures-reference.md: each row is run through the lifecycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distrun.lifecycle import TaskPhase
from distrun.spec.loader import load
from distrun.words.causes import cause_text
from harness.failures_page import Row, restart_rows, success_rows

from .histories import Job, restarts_planned

if TYPE_CHECKING:
    from pathlib import Path


def start_job(row: Row, folder: Path) -> Job:
    """The job of a row, with all tasks running."""
    (folder / "job.yaml").write_text(row.yaml(["true"]))
    spec = load(folder / "job.yaml")
    policies = {role.role.value: role.restart for role in spec.roles if role.restart is not None}
    job = Job()
    job.created(
        spec.strategy,
        spec.success,
        restart=spec.restart,
        role_restarts=policies,
        **({} if spec.workers is None else {"workers": spec.workers}),
    )
    names = [f"{role.role.value}:{n}" for role in spec.roles for n in range(role.count)]
    job.planned(*names)
    job.started(*names)
    return job


@pytest.mark.parametrize("row", success_rows(), ids=str)
def test_who_decides(row: Row, tmp_path: Path) -> None:
    job = start_job(row, tmp_path)
    for number, (task, code) in enumerate(row.exits, 1):
        assert job.undecided(), f"decided before exit {number}"
        job.gone(task, code)
    assert outcome(job) == row.outcome


@pytest.mark.parametrize("row", restart_rows(), ids=str)
def test_what_starts_again(row: Row, tmp_path: Path) -> None:
    job = start_job(row, tmp_path)
    for task, code in row.exits:
        job.gone(task, code)
    if row.restarted:
        assert job.undecided()
        (planned,) = restarts_planned(job)
        assert set(planned.tasks) == set(row.restarted)
        return
    assert not restarts_planned(job)
    assert outcome(job) == row.outcome
    if row.reason:
        assert f"not restarted: {row.reason}" in cause_text(job.outcome.cause)
    assert TaskPhase.RESTARTING.value not in job.phases().values()


def outcome(job: Job) -> str:
    if job.undecided():
        return "continues"
    result, code, _ = job.verdict or ("", 0, "")
    return "succeeds" if result == "succeeded" else f"fails with {code}"
