"""`validate` warns if the spec asks this machine for more GPUs than it has."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from harness.command import Distrun


def test_more_gpus_than_there_are(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    program = distrun.cwd / "nvidia-smi"  # it lists two GPUs
    program.write_text("#!/bin/sh\necho asked >> asked\necho 0\necho 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(distrun.cwd), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def told(command: str, *options: str, **keys: Any) -> tuple[int, str]:
        done = distrun(command, distrun.write_spec("true", **keys), *options)
        return done.returncode, done.stderr

    far = {"cluster": {"worker": {"count": 2, "gpus": 9}}, "hosts": ["far1", "far2"]}
    assert "warning" not in told("validate", **far)[1]
    assert not (distrun.cwd / "asked").exists(), "asked though the spec asks for nothing here"

    asks: Any = {"cluster": {"worker": {"count": 2, "gpus": 2}}}
    warned = "the tasks on localhost ask for 4 GPUs, and it has 2"
    code, said = told("validate", **asks)
    assert code == 0
    assert re.search(rf"job\.yaml:\d+:\d+: warning: {warned}; lower `gpus`", said)
    for command, *options in (("validate", "--strict"), ("launch",)):
        code, said = told(command, *options, **asks)
        assert code == 65
        assert warned in said

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "ask for 4 GPUs, and it has 1" in told("validate", **asks)[1]


def test_gpus_that_nvidia_smi_cannot_list_are_not_taken_for_none(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = distrun.cwd / "nvidia-smi"
    program.write_text("#!/bin/sh\necho Driver/library version mismatch\necho more\nexit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(distrun.cwd), prepend=os.pathsep)
    why = "nvidia-smi exited with 18: Driver/library version mismatch; "
    done = distrun("launch", distrun.write_spec("true"))
    assert done.returncode == 0
    assert f"warning: localhost: {why}" in done.stderr
    assert why in distrun("doctor", distrun.write_spec("true")).stdout
    asks = distrun.write_spec("true", cluster={"worker": {"count": 2, "gpus": 1}})
    done = distrun("launch", asks)
    assert done.returncode == 65
    assert f"ask for 2 GPUs, and it has 0; {why}" in done.stderr
    assert why in distrun("validate", asks).stderr

    # A machine without GPUs may have nvidia-smi all the same.
    program.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    assert "nvidia-smi" not in distrun("launch", distrun.write_spec("true")).stderr
