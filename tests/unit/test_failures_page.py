"""The tables of docs/failures-reference.md: each row is run through the lifecycle."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.histories import MWM, PS, Job, restarts_planned, running
from harness.parts.lifecycle import TaskPhase
from harness.parts.words import cause_text
from harness.specs import load_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failures-reference.md"
CLUSTERS = {
    "mirrored": {"worker": "1"}, MWM: {"worker": "2", "evaluator": "1"},
    PS: {"chief": "1", "worker": "2", "ps": "1"},
}  # fmt: skip
"""Of the table of what starts again."""


def table(name: str, columns: int) -> list[list[str]]:
    lines = PAGE.read_text().partition(f"<!-- table: {name} -->\n")[2].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        assert len(rows[-1]) == columns, line
    assert rows
    return rows


def start_job(
    folder: Path, strategy: str, workers: str, cluster: Mapping[str, str], more: str
) -> Job:
    """The job of a row, with all tasks running. `more` is YAML."""
    if strategy == PS:
        more += f"\nworkers: {workers or 'coordinated'}"
    roles = ", ".join(f"{role}: {about}" for role, about in cluster.items())
    program = "program: {command: [sh]}"
    spec = load_text(folder, f"strategy: {strategy}\ncluster: {{{roles}}}\n{program}\n{more}\n")
    names = [f"{role.role.value}:{n}" for role in spec.roles for n in range(role.count)]
    own = {each.role.value: each.restart for each in spec.roles if each.restart}
    about: dict[str, Any] = {"restart": spec.restart, "role_restarts": own}
    if spec.workers is not None:
        about["workers"] = spec.workers
    return running(spec.strategy, *names, success=spec.success, **about)


def exits_of(cell: str) -> list[tuple[str, int]]:
    return [(task, int(code)) for task, code in re.findall(r"(\w+:\d) exits (\d+)", cell)]


def outcome(job: Job) -> str:
    if job.undecided():
        return "continues"
    is_success = job.outcome.result == "succeeded"
    return "succeeds" if is_success else f"fails with {job.outcome.exit_code}"


@pytest.mark.parametrize("row", table("success", 6), ids=" ".join)
def test_who_decides(row: list[str], tmp_path: Path) -> None:
    strategy, success, cluster, exits, then, _ = row
    counts = {role if role == "ps" else role.rstrip("s"): count
              for count, role in re.findall(r"(\d) (\w+)", cluster)}  # fmt: skip
    name, _, workers = strategy.replace("`", "").partition(", ")
    job = start_job(tmp_path, name, workers, counts, f"success: {success.strip('`')}")
    for number, (task, code) in enumerate(exits_of(exits), 1):
        assert job.undecided(), f"decided before exit {number}"
        job.gone(task, code)
    assert outcome(job) == re.split("[:;]", then)[0]


@pytest.mark.parametrize("row", table("restarts", 5), ids=" ".join)
def test_what_starts_again(row: list[str], tmp_path: Path) -> None:
    strategy, policy, exits, then, _ = row
    name, _, workers = strategy.replace("`", "").partition(", ")
    restart, *own = re.findall("`([^`]*)`", policy)
    cluster = dict(CLUSTERS[name])
    for role, _, about in (each.partition(": ") for each in own):
        cluster[role] = f"{{count: {cluster[role]}, restart: {about}}}"
    job = start_job(tmp_path, name, workers, cluster, f"restart: {restart}")
    for task, code in exits_of(exits):
        job.gone(task, code)
    if re.fullmatch(r"(\w+:\d(, )?)+", then):
        assert job.undecided()
        (planned,) = restarts_planned(job)
        assert {*planned.tasks} == {*then.split(", ")}
        return
    assert not restarts_planned(job)
    decided, _, reason = then.partition(": ")
    assert outcome(job) == ("continues" if decided.startswith("nothing") else decided)
    if reason and decided.startswith("fails"):
        assert f"not restarted: {reason}" in cause_text(job.outcome.cause)
    assert TaskPhase.RESTARTING.value not in job.phases().values()
