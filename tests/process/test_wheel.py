"""The built wheel, installed without a checkout, launches a script."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.processes import captured

ROOT = Path(__file__).resolve().parents[2]

SPEC = """\
name: trivial
strategy: multi_worker_mirrored
cluster:
  worker: 2
program:
  script: trivial.py
"""
SCRIPT = 'import os\nprint(os.environ["TF_CONFIG"])\n'


def run(
    *words: str | Path, cwd: Path, code: int | None = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command outside of this environment. `code`: the exit code that it must have."""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = captured(words, cwd=cwd, env={**kept, **environment}, timeout=240)
    assert code in (None, done.returncode), f"{words}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution and from it the wheel, as for a release."""
    folder = tmp_path_factory.mktemp("dist")
    here = ["--no-isolation"] if find_spec("hatchling") else []  # else in two new environments
    run(sys.executable, "-m", "build", *here, "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "-q", "--no-compile", wheel, cwd=folder)
    return folder / "bin" / "distrun"


@pytest.mark.network
@pytest.mark.timeout(400)
def test_the_wheel_has_the_jobs_and_the_templates(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if "__pycache__" not in name}
    for folder in ("jobs", "templates"):
        tracked = {
            f"distrun/bundled/{path.relative_to(ROOT)}"
            for path in ROOT.joinpath(folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert tracked
        assert tracked <= names
    assert {"distrun/py.typed", "distrun/spec/removed_by_keras_3.txt"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "launcher/", "jobs/")) for name in names)


@pytest.mark.network
@pytest.mark.timeout(400)
def test_the_wheel_needs_no_checkout(installed: Path, distrun_home: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("trivial.yaml").write_text(SPEC)
    tmp_path.joinpath("trivial.py").write_text(SCRIPT)
    shown = run(installed, "launch", "trivial.yaml", cwd=tmp_path).stdout.splitlines()
    configs = {}
    for line in shown:
        task, _, text = line.partition(" | ")
        configs[task.strip()] = json.loads(text)
    assert set(configs) == {"worker:0", "worker:1"}
    assert configs["worker:1"]["task"] == {"type": "worker", "index": 1}
    assert configs["worker:0"]["cluster"] == configs["worker:1"]["cluster"]
    assert len(set(configs["worker:0"]["cluster"]["worker"])) == 2
    tmp_path.joinpath("bundled.yaml").write_text(SPEC.replace("trivial.py", "mnist"))
    assert "has ended" in run(installed, "stacks", cwd=tmp_path, code=2).stderr
    run(installed, "run", "--detach", "sleep", "600", cwd=tmp_path)
    for words, lacking in (
        ("report", "a report needs jinja2"),
        ("watch", "watch needs textual"),
        ("stacks", "py-spy is not installed here"),
        ("launch bundled.yaml", "the bundled job needs numpy, tensorflow, tf_keras"),
    ):
        done = run(installed, *words.split(), cwd=tmp_path, code=None)
        assert done.returncode in (65, 69), done.stderr
        assert lacking in done.stderr
        assert "pip install" in done.stderr
        assert "Traceback" not in done.stderr
    run(installed, "kill", cwd=tmp_path)
    # It finds its own jobs and templates.
    plan = run(installed, "plan", "bundled.yaml", "--json", cwd=tmp_path).stdout
    assert json.loads(plan)["version"] == 2
    assert str(installed.parents[1] / "lib") in plan
    assert str(ROOT) not in plan
    run(installed, "init", "multi_worker", cwd=tmp_path)
    script = tmp_path / "multi_worker.py"
    assert script.read_bytes() == (ROOT / "jobs" / "examples" / "multi_worker.py").read_bytes()
    plan = run(installed, "plan", "multi_worker.yaml", "--json", cwd=tmp_path).stdout
    assert json.dumps(str(script)) in plan
