"""`program.keras` and `program.tf_config` in real launches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness.command import Distrun

SHOW = """\
import os
print(os.environ.get("TF_USE_LEGACY_KERAS"), os.environ.get("TF_CONFIG"))
print(os.environ["DISTRUN_TASK"], "TF_GRPC_REUSE_PORT" in os.environ)
"""


def write_job(distrun: Distrun, **program: Any) -> Path:
    (distrun.cwd / "train.py").write_text(SHOW)
    return distrun.write_spec("", 1, program={"script": "train.py", **program})


def test_without_tf_keras_nothing_starts(distrun: Distrun) -> None:
    python = distrun.cwd / "python3"  # it has no packages, whatever this machine has
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    packages = distrun.cwd / "packages"
    for name in ("tensorflow", "tensorflow-2.21.0.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "tensorflow" / "__init__.py").touch()
    spec = write_job(distrun, python=str(python), keras=2, env={"PYTHONPATH": str(packages)})
    words = f"program.keras is 2, but {python} has no tf_keras"
    advice = f'install it: {python} -m pip install "tf_keras==2.21.*"'
    done = distrun("launch", spec)
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert words in done.stderr
    assert advice in done.stderr
    done = distrun("validate", spec)
    assert done.returncode == 0
    assert f"program.keras: warning: {words}; {advice}" in done.stderr
    assert distrun("validate", "--strict", spec).returncode == 65
    assert '"jobs": []' in distrun.asked("ps", "-a", "--json")
    (distrun.cwd / "tf_keras.py").touch()
    assert "worker:0 | 1 {" in distrun.checked("launch", spec).stdout


def test_a_tf_config_in_env_is_refused_unless_it_is_meant(distrun: Distrun) -> None:
    spec = write_job(distrun, env={"TF_CONFIG": "{}"})
    done = distrun("launch", spec)
    assert (done.returncode, done.stdout) == (65, "")
    assert "program.env sets TF_CONFIG" in done.stderr
    assert "write 'tf_config: mine' under program" in done.stderr
    done = distrun.checked("launch", spec, "--set", "program.tf_config=mine")
    assert "worker:0 | None {}" in done.stdout
    assert "worker:0 | worker:0 True" in done.stdout
