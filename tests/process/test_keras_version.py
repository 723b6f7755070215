"""`program.keras` and `program.tf_config` in real launches, with interpreters made for them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.requirements import need_tensorflow

SHOW = """\
import os
print(os.environ.get("TF_USE_LEGACY_KERAS"), os.environ.get("TF_CONFIG"))
print(os.environ["DISTRUN_TASK"], "TF_GRPC_REUSE_PORT" in os.environ)
"""
WITHOUT_PACKAGES = '#!/bin/sh\nexec {python} -S "$@"\n'


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that has no packages, whatever this machine has."""
    path = tmp_path / "bin" / "python3"
    path.parent.mkdir()
    path.write_text(WITHOUT_PACKAGES.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def packages(folder: Path, *names: str, tensorflow: str = "2.21.0") -> str:
    """A folder for PYTHONPATH with some packages."""
    path = folder / "-".join(["packages", *names])
    for name in names:
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").touch()
    if "tensorflow" in names:
        (path / f"tensorflow-{tensorflow}.dist-info").mkdir()
    return str(path)


def write_job(folder: Path, python: str | None = None, **program: Any) -> Path:
    (folder / "train.py").write_text(SHOW)
    spec = folder / "job.yaml"
    content = {
        "strategy": "multi_worker_mirrored",
        "cluster": {"worker": 2},
        "program": {"script": "train.py", **({"python": python} if python else {}), **program},
    }
    spec.write_text(json.dumps(content))
    return spec


def jobs(distrun: Distrun) -> list[Any]:
    found: list[Any] = json.loads(distrun("ps", "-a", "--json").stdout)["jobs"]
    return found


def test_without_tf_keras_nothing_starts(distrun: Distrun, python: str) -> None:
    found = packages(distrun.cwd, "tensorflow")
    spec = write_job(distrun.cwd, python, keras=2, env={"PYTHONPATH": found})
    words = f"program.keras is 2, but {python} has no tf_keras"
    advice = f'install it: {python} -m pip install "tf_keras==2.21.*"'
    done = distrun("launch", spec)
    assert (done.returncode, done.stdout) == (69, ""), done.stderr
    assert words in done.stderr
    assert advice in done.stderr
    assert jobs(distrun) == []
    done = distrun("validate", spec)
    assert done.returncode == 0
    assert f"program.keras: warning: {words}; {advice}" in done.stderr
    assert distrun("validate", "--strict", spec).returncode == 65
    done = distrun("doctor", spec)
    assert done.returncode == 69
    assert words in done.stdout + done.stderr
    done = distrun("launch", "--no-preflight", spec)
    assert done.returncode == 0, done.stderr


def test_keras_2_is_in_an_older_tensorflow_or_beside_the_script(
    distrun: Distrun, python: str
) -> None:
    found = packages(distrun.cwd, "tensorflow", tensorflow="2.12.0")
    spec = write_job(distrun.cwd, python, keras=2, env={"PYTHONPATH": found})
    assert distrun("launch", spec).returncode == 0
    spec = write_job(distrun.cwd, python, keras=2)
    assert distrun("launch", spec).returncode == 69
    (distrun.cwd / "tf_keras.py").touch()
    done = distrun("launch", spec)
    assert done.returncode == 0
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | 1 {{" in done.stdout
    program = {"command": ["sh", "-c", "echo legacy=$TF_USE_LEGACY_KERAS"], "keras": 2}
    spec.write_text(json.dumps({"strategy": "mirrored", "program": program}))
    done = distrun("launch", spec)  # what is not Python is not asked
    assert (done.returncode, done.stdout.strip()) == (0, "worker:0 | legacy=1")


def test_a_tf_config_in_env_is_refused_unless_it_is_meant(distrun: Distrun) -> None:
    spec = write_job(distrun.cwd, env={"TF_CONFIG": "{}"})
    for command in ("launch", "plan"):
        done = distrun(command, spec)
        assert (done.returncode, done.stdout) == (65, "")
        assert "program.env sets TF_CONFIG" in done.stderr
        assert "write 'tf_config: mine' under program" in done.stderr
    assert jobs(distrun) == []
    done = distrun("launch", spec, "--set", "program.tf_config=mine")
    assert done.returncode == 0, done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | None {{}}" in done.stdout
        assert f"{worker} | {worker} True" in done.stdout
    spec = write_job(distrun.cwd, tf_config="mine")
    (distrun.cwd / "train.py").write_text(f"{SHOW}os.environ['TF_CONFIG'] = '{{}}'\n")
    done = distrun("launch", spec)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("None None") == 2
    assert "TF_CONFIG" not in done.stderr


def test_the_advice_does_not_name_what_is_set(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code for Keras 2 fails under `keras: 2` as well, if it imports Keras itself."""
    need_tensorflow()
    monkeypatch.setenv("PYTHONPATH", packages(distrun.cwd, "tf_keras"), prepend=os.pathsep)
    spec = write_job(distrun.cwd, keras=2)
    (distrun.cwd / "train.py").write_text("class Mean: ...\nMean().reset_states()\n")
    done = distrun("launch", spec)
    verdict = json.loads(distrun("status", "--json").stdout)["job"]["verdict"]
    assert verdict["kind"] == "keras3", done.stderr
    assert "set `program.keras: 2`" not in verdict["advice"]
    assert "from tensorflow import keras" in verdict["advice"]
