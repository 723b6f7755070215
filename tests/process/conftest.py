"""Specs written by the tests, and what a job says of itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

WriteSpec = Callable[..., Path]
Status = Callable[..., dict[str, Any]]


@pytest.fixture
def write_spec(tmp_path: Path) -> WriteSpec:
    """Write a spec of `workers` that run a shell script; more keys as keywords."""

    def write(script: str, workers: int = 2, name: str = "job", **keys: Any) -> Path:
        document = {
            "name": name,
            "strategy": "multi_worker_mirrored",
            "cluster": {"worker": workers},
            "program": {"command": ["sh", "-c", script]},
            **keys,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def status(distrun: Any) -> Status:
    """What `status --json` says of a job, the newest by default."""

    def ask(*job: str) -> dict[str, Any]:
        done: subprocess.CompletedProcess[str] = distrun("status", "--json", *job)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["job"]

    return ask
