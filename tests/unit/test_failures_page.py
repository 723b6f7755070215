"""The tables of docs/failures-reference.md: each row is run through the lifecycle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from distrun.lifecycle import TaskPhase
from distrun.words.causes import cause_text

from .histories import Job, restarts_planned
from .specs import load_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failures-reference.md"
_CLUSTERS = {
    "mirrored": {"worker": 1},
    "multi_worker_mirrored": {"worker": 2, "evaluator": 1},
    "parameter_server": {"chief": 1, "worker": 2, "ps": 1},
}


@dataclass(frozen=True)
class Row:
    """A row. `restart` and `role_restart` are YAML.

    `outcome` is `succeeds`, `fails with` a code, or `continues`.
    """

    strategy: str
    workers: str
    success: str
    cluster: tuple[tuple[str, int], ...]
    exits: tuple[tuple[str, int], ...]
    outcome: str
    restart: str = ""
    role_restart: tuple[str, str] = ("", "")
    restarted: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        roles = "+".join(f"{count}{role}" for role, count in self.cluster)
        exits = "+".join(f"{task}={code}" for task, code in self.exits)
        more = f" {self.restart}{self.role_restart[1]}" if self.restart else ""
        return f"{self.strategy} {self.workers} {self.success} {roles} {exits}{more}"

    def yaml(self) -> str:
        """A spec for the row."""
        role, policy = self.role_restart
        roles = [
            f"{name}: {{count: {count}, restart: {policy}}}" if name == role else f"{name}: {count}"
            for name, count in self.cluster
        ]
        lines = [
            f"strategy: {self.strategy}",
            f"cluster: {{{', '.join(roles)}}}",
            f"success: {self.success}",
            "program: {command: [sh]}",
        ]
        if self.workers:
            lines.append(f"workers: {self.workers}")
        elif self.strategy == "parameter_server":
            lines.append("workers: coordinated")
        if self.restart:
            lines.append(f"restart: {self.restart}")
        return "\n".join(lines) + "\n"


def success_rows() -> list[Row]:
    """The table of what decides without restarts."""
    return [
        Row(
            *_strategy(strategy),
            success=success.strip("`"),
            cluster=tuple(
                (role if role == "ps" else role.rstrip("s"), int(count))
                for count, role in re.findall(r"(\d) (\w+)", cluster)
            ),
            exits=_exits(exits),
            outcome=re.split("[:;]", then)[0],
        )
        for strategy, success, cluster, exits, then, _ in _table("success", 6)
    ]


def restart_rows() -> list[Row]:
    """The table of what starts again."""
    found = []
    for strategy, policy, exits, then, _ in _table("restarts", 5):
        job, *own = re.findall("`([^`]*)`", policy)
        role, _, role_policy = own[0].partition(": ") if own else ("", "", "")
        name, workers = _strategy(strategy)
        outcome, _, reason = then.partition(": ")
        is_restart = re.fullmatch(r"(\w+:\d(, )?)+", then)
        found.append(
            Row(
                name,
                workers,
                success="strategy",
                cluster=tuple(_CLUSTERS[name].items()),
                exits=_exits(exits),
                outcome="continues" if outcome.startswith("nothing") else outcome,
                restart=job,
                role_restart=(role, role_policy),
                restarted=tuple(then.split(", ")) if is_restart else (),
                reason=reason if outcome.startswith("fails") else "",
            )
        )
    return found


def _strategy(cell: str) -> tuple[str, str]:
    strategy, _, workers = cell.replace("`", "").partition(", ")
    return strategy, workers


def _exits(cell: str) -> tuple[tuple[str, int], ...]:
    return tuple((task, int(code)) for task, code in re.findall(r"(\w+:\d) exits (\d+)", cell))


def _table(name: str, columns: int) -> list[list[str]]:
    lines = PAGE.read_text().partition(f"<!-- table: {name} -->\n")[2].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == columns, line
        rows.append(cells)
    assert rows
    return rows


def start_job(row: Row, folder: Path) -> Job:
    """The job of a row, with all tasks running."""
    spec = load_text(folder, row.yaml())
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
