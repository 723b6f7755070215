"""`distrun compare`: jobs side by side, as a table, as JSON and as a page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from distrun.job.history import Sample
from distrun.report.comparison import steps_of
from harness.command import Distrun
from harness.json_page import PAGE, Reader
from harness.long_job import write_long_job
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

SECRET = "verysecret-5-value"


@pytest.fixture
def jobs(distrun: Distrun) -> list[str]:
    """One that ran for a day, one that failed at once, and one that runs and tells nothing."""
    write_long_job(distrun.home / "jobs" / "long-aaaaaa", hosts=1)
    program = {"command": ["sh", "-c", "exit 3"], "env": {"MY_TOKEN": SECRET}}
    assert distrun.launch("", program=program, name="failed").returncode == 3
    return ["long-aaaaaa", "failed", distrun.detached("exec sleep 600", workers=1)]


def test_jobs_of_all_kinds_are_shown_side_by_side(
    distrun: Distrun, jobs: list[str], terminal: OpenTerminal
) -> None:
    page = distrun.cwd / "page.html"
    done = distrun("compare", *jobs, "--json", "-o", page)
    assert done.returncode == 0, done.stderr
    reader = Reader(PAGE.read_text())
    found: dict[str, Any] = json.loads(done.stdout)
    reader.check("compare", found)
    assert not reader.missing("compare", found["jobs"][0], "jobs[].")
    assert reader.faults == []
    long, failed, running = found["jobs"]
    assert (long["state"], failed["exit_code"], running["state"]) == ("succeeded", 3, "running")
    assert (running["metrics"], running["step"]) == ({}, None)
    assert long["first_step_seconds"] == pytest.approx(25, abs=1)
    assert long["steps_per_second"] > 0
    differences = {each["name"]: each["values"] for each in found["differences"]}
    assert differences["cluster.worker.count"] == ["", "2", "1"]
    assert "distrun version" not in differences  # the first one does not say
    html = page.read_text()
    titles = set(re.findall(r"<figcaption>(.*?)</figcaption>", html))
    assert {"Loss over steps", "Loss over time", "Steps over time"} <= titles
    assert SECRET not in html + done.stdout
    window = terminal("compare", *jobs, columns=60)
    wait_until(window.ended, timeout=60)
    lines = window.text().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("JOB") for line in lines) >= 2
    assert all(any(job in line for line in lines) for job in jobs[::2])
    for names, said in (
        (["long", "long-aaaaaa"], "long-aaaaaa is named twice"),
        (["long"], "name two to six jobs, not 1"),
        (["long", "none"], "there is no job 'none'"),
    ):
        refused = distrun("compare", *names)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr
    assert distrun("kill", jobs[2]).returncode == 0


def sample(attempt: int, **progress: float) -> Sample:
    return Sample(
        at=0.0, attempt=attempt, cpu_seconds=None, memory_bytes=None, peak_memory_bytes=None,
        processes=None, read_bytes=None, written_bytes=None, progress=progress,
    )  # fmt: skip


def test_steps_are_counted_over_all_epochs() -> None:
    told: list[tuple[list[tuple[int, float, float]], list[float]]] = [
        ([(0, 1, 4), (0, 2, 6), (0, 3, 8)], [4, 16, 28]),  # Keras: STEP has not been seen to fall
        ([(0, 1, 5), (0, 2, 2), (1, 2, 1)], [5, 12, 11]),  # a restart is no new epoch
    ]
    for values, steps in told:
        samples = [
            sample(a, EPOCH=epoch, STEP=step, STEPS=10, EPOCHS=3) for a, epoch, step in values
        ]
        assert [step for _, step in steps_of([sample(0, LOSS=1), *samples])] == steps
