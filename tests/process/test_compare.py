"""`distrun compare`: jobs side by side, as a table, as JSON and as a page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from distrun.job.history import Sample
from distrun.report.comparison import Run, steps_of, with_whole_epochs
from harness.command import Distrun
from harness.json_page import PAGE, Reader
from harness.long_job import write_long_job
from harness.terminal import OpenTerminal
from harness.waiting import wait_until

SECRET = "verysecret-5-value"


@pytest.fixture
def jobs(distrun: Distrun, distrun_home: Path) -> list[str]:
    """One that ran for a day, one that failed at once, and one that runs and tells nothing."""
    write_long_job(distrun_home / "jobs" / "long-aaaaaa", hosts=1)
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
    for columns in (80, 60):
        window = terminal("compare", *jobs, columns=columns)
        wait_until(window.ended, timeout=60)
        lines = window.text().splitlines()
        assert max(map(len, lines)) <= columns
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


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        ([(0, 1, 4), (0, 2, 6), (0, 3, 8)], [4, 16, 28]),  # Keras: STEP has not been seen to fall
        ([(0, 1, 1), (0, 1, 3), (1, 1, 2)], [1, 3, 2]),  # a restart is no new epoch
        ([(0, 1, 5), (0, 2, 2), (1, 2, 1)], [5, 12, 11]),  # Keras counts in each epoch
        ([], []),
    ],
)
def test_steps_are_counted_over_all_epochs(
    told: list[tuple[int, float, float]], steps: list[float]
) -> None:
    samples = [sample(a, EPOCH=epoch, STEP=step, STEPS=10, EPOCHS=3) for a, epoch, step in told]
    assert [step for _, step in steps_of([sample(0, LOSS=1), *samples])] == steps


def test_a_program_that_prints_whole_epochs_has_steps_between_them(tmp_path: Path) -> None:
    told = [{"EPOCH": 1.0}, {"EPOCH": 2.0, "LOSS": 1.0}, {"EPOCH": 3.0, "STEP": 10.0}]
    samples = [sample(0, EPOCHS=3.0, **each) for each in told]
    samples[2].progress["STEPS"] = 10.0
    for size, count, steps in ((10.0, 3, [0, 10, 30]), (1.0, 3, [10]), (10.0, 2, [0, 10])):
        filled = with_whole_epochs(samples[:count], {"EPOCH": 1.0, "STEP": size})
        assert [step for _, step in steps_of(filled)] == steps
    # Without samples, the first and the last step tell the rate.
    folder = write_long_job(tmp_path / "long-aaaaaa", hosts=1)
    shutil.rmtree(folder.history)
    first, last = '"EPOCH":"1","STEP":"10"', '"EPOCH":"3","EPOCHS":"3","STEPS":"10","STEP":"10"'
    record = folder.events_file.read_text().replace('"values":{}', f'"values":{{{first}}}')
    folder.events_file.write_text(record.replace('"STEP":"86400"', last))
    assert Run(folder).numbers["steps_per_second"] == pytest.approx(20 / 21574)
