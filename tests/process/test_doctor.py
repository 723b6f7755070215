"""`distrun doctor` on this machine: the modules that the program imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.command import Distrun
from harness.requirements import need_tensorflow

FAILED = 69


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """Return an interpreter with only the standard library."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def write_job(folder: Path, script: str, **program: object) -> Path:
    (folder / "train.py").write_text(script)
    path = folder / "job.yaml"
    program = {"script": "train.py", **program}
    path.write_text(yaml.safe_dump({"strategy": "default", "program": program}))
    return path


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("import numpy\nimport tensorflow as tf\n", "numpy, tensorflow"),
        ("import beside\n", "numpy"),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None\n", None),
        ("import json\nimport beside_too\n", None),
    ],
)
def test_a_script_needs_what_it_imports(
    distrun: Distrun, bare_python: str, script: str, missing: str | None
) -> None:
    (distrun.cwd / "beside.py").write_text("import numpy\n")
    (distrun.cwd / "beside_too.py").write_text("")
    done = distrun("doctor", "--json", write_job(distrun.cwd, script, python=bare_python))
    found = json.loads(done.stdout)["doctor"]
    checks = [each for each in found["checks"] if each["subject"] == "modules"]
    if missing is None:
        assert (done.returncode, found["ok"]) == (0, True)
        assert {each["grade"] for each in checks} <= {"ok"}
    else:
        assert (done.returncode, found["ok"]) == (FAILED, False)
        assert [each["grade"] for each in checks] == ["failed"]
        assert f" has no {missing}: " in checks[0]["text"]


def test_this_machine_alone(distrun: Distrun, bare_python: str) -> None:
    need_tensorflow()
    done = distrun("doctor")
    assert done.returncode == 0, done.stdout
    assert "modules" in done.stdout
    assert "failed" not in done.stdout
    without = distrun("doctor", "--set", f"program.python={bare_python}")
    assert without.returncode == FAILED
    assert "has no numpy, tensorflow, tf_keras" in without.stdout
