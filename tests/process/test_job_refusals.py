"""The bundled job refuses wrong arguments in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.training import MAIN

CLUSTER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}


def environ(**config: Any) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({**CLUSTER, **config})}


def refused(code: int, *argv: str, **options: Any) -> str:
    """Run the job, which is to exit with that code; the one line that it says."""
    done = subprocess.run(
        [sys.executable, str(MAIN), *argv],
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    return str(done.stderr)


@pytest.mark.parametrize("option", ["--checkpoint-dir", "--summary-dir"])
def test_a_folder_that_cannot_be_written_to_is_told_before_training(
    option: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    said = refused(2, option, "file/saved", cwd=tmp_path)
    assert said == f"error: {option}: nothing can be written to file/saved (Not a directory)\n"


@pytest.mark.parametrize(
    ("config", "strategy", "says"),
    [
        ({"task": {"type": "ps", "index": 0}}, "multi_worker_mirrored", "ps:0 has no part in"),
        ({}, "parameter_server", "there is no chief and no ps"),
        (
            {"task": {"type": "evaluator", "index": 0}},
            "multi_worker_mirrored",
            "give all tasks the same --checkpoint-dir",
        ),
    ],
)
def test_a_task_that_has_no_part_is_told_in_one_line(config: Any, strategy: str, says: str) -> None:
    env = environ(**config)
    if config.get("task", {}).get("type") == "ps":
        env = environ(cluster={"worker": ["a:1"], "ps": ["b:1"]}, **config)
    assert says in refused(2, "--strategy", strategy, env={**os.environ, **env})


def test_a_folder_without_mnist_ends_in_one_line(tmp_path: Path) -> None:
    said = refused(65, "--data-dir", str(tmp_path))
    assert said.startswith(f"error: no mnist in {tmp_path}")
