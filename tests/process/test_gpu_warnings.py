"""`validate` warns if the spec asks this machine for more GPUs than it has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that lists two GPUs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho asked >> asked\necho 0\necho 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def write_spec(folder: Path, **keys: Any) -> None:
    document = {"strategy": "multi_worker_mirrored", "program": {"command": ["true"]}, **keys}
    lines = (f"{name}: {json.dumps(value)}\n" for name, value in document.items())
    (folder / "job.yaml").write_text("".join(lines))


@pytest.mark.usefixtures("two_gpus")
def test_more_gpus_than_there_are(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    far = {"cluster": {"worker": {"count": 2, "gpus": 9}}, "hosts": ["far1", "far2"]}
    for keys in ({"cluster": {"worker": 4}}, far):
        write_spec(distrun.cwd, **keys)
        assert "warning" not in distrun("validate", "job.yaml").stderr
    assert not (distrun.cwd / "asked").exists(), "asked though the spec asks for nothing here"

    write_spec(distrun.cwd, cluster={"worker": {"count": 2, "gpus": 2}})
    warned = (
        "job.yaml:3:42: {}the tasks on localhost ask for 4 GPUs, and it has 2; lower `gpus`, or "
        "the number of tasks"
    )
    done = distrun("validate", "job.yaml")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == warned.format("warning: ")
    assert "is valid" in done.stderr
    done = distrun("validate", "--strict", "job.yaml")
    assert (done.returncode, done.stderr) == (65, warned.format("") + "\n")
    done = distrun("launch", "job.yaml")
    assert done.returncode == 65
    assert "the tasks on localhost ask for 4 GPUs, and it has 2" in done.stderr

    one = ("--set", "cluster.worker.count=1")
    assert "warning" not in distrun("validate", "job.yaml", *one).stderr
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "ask for 2 GPUs, and it has 1" in distrun("validate", "job.yaml", *one).stderr
