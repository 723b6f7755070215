"""A task that is killed in the middle of the first save: the job restarts and trains anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun, Status
from harness.interrupted_saves import interrupted_saves

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
PATIENCE = 240.0
INDEX = "ckpt-1.index"


def is_ps(pid: int) -> bool:
    return b"DISTRUN_TASK=ps:0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize(
    ("strategy", "cluster", "is_chosen", "torn"),
    [
        ("multi_worker_mirrored", "{worker: 2}", lambda name, _: name == INDEX, True),
        ("multi_worker_mirrored", "{chief: 1, worker: 1}", lambda name, _: name == INDEX, True),
        (
            "multi_worker_mirrored",
            "{worker: 2}",
            lambda name, _: name == f"workertemp_worker_1/{INDEX}",
            False,
        ),
        (
            "parameter_server",
            "{chief: 1, worker: 1, ps: 1}",
            lambda name, _: name == INDEX,
            True,
        ),
        (
            "parameter_server",
            "{chief: 1, worker: 1, ps: 1}",
            lambda name, pid: name.startswith("ckpt-1_temp/") and is_ps(pid),
            False,
        ),
    ],
    ids=["worker0", "chief", "worker1", "chief-of-ps", "ps"],
)
def test_the_job_restarts_after_a_first_save_that_was_killed(
    strategy: str,
    cluster: str,
    is_chosen: Callable[[str, int], bool],
    torn: bool,
    distrun: Distrun,
    small_mnist: Path,
    status: Status,
) -> None:
    distrun.cwd.joinpath("job.yaml").write_text(
        f"strategy: {strategy}\ncluster: {cluster}\n"
        "program: {script: mnist}\nrestart: {max: 1, backoff: 100ms}\n"
    )
    arguments = [
        "--data-dir", str(small_mnist), "--checkpoint-dir", "saved",
        "--steps-per-epoch", "8", "--checkpoint-every", "4", "--epochs", "1",
    ]  # fmt: skip
    with interrupted_saves(distrun.cwd / "saved", is_chosen) as saves:
        done = distrun("launch", "job.yaml", "--", *arguments, timeout=PATIENCE)
    assert saves.victim
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert status()["restarts"] == 1
    anew = "training starts anew" in done.stdout
    assert anew or not torn
    # If it was no chief that died, the chief may have completed its own checkpoint.
    assert anew or "resumed from" in done.stdout or not torn
    assert "epoch 1/1  step 8 " in done.stdout
