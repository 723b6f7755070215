"""The batch script of `distrun submit`, run by bash where Slurm would run it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.command import Distrun

SPEC = (
    'name: j\nstrategy: multi_worker_mirrored\ncluster: {worker: 1}\nprogram: {command: ["true"]}\n'
)
NAMES = (
    *(b"a b  c", b"a\nb", b"a\n#SBATCH --output=x\nb", b"a\ntouch owned\nb", b"a\rb", b"it's"),
    *(b'say "x"', b"$(touch owned)`touch owned`${HOME}", b"a\\nb\\", b"a\xff\xfeb", b"--help"),
    *("Jürgen 数据".encode(), b"a\x1b[31mred\x1b]0;title\x07", b"%j-%x", b"*?[a]{b,c}~!#&;|<>"),
    b"a\n",
)
FOLDER = os.fsdecode(b"/".join([*NAMES, b"a" * 250]))


def written(distrun: Distrun, *args: str, cwd: Path | None = None) -> bytes:
    done = distrun("submit", "job.yaml", "--dry-run", *args, text=False, cwd=cwd or distrun.cwd)
    assert done.returncode == 0, done.stderr
    script: bytes = done.stdout
    return script


def run(script: bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script as Slurm does, but in no allocation: distrun ends soon."""
    env = {**os.environ, "SLURM_JOB_ID": "7", **variables}
    return subprocess.run(
        ["bash"], input=script, capture_output=True, env=env, cwd="/", timeout=60, check=False
    )


def test_any_name_of_a_folder_is_survived(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the names is that of a folder above the job's, and above DISTRUN_HOME."""
    folder, home = distrun.cwd / FOLDER, distrun.cwd / f"home {FOLDER}"
    folder.mkdir(parents=True)
    home.mkdir(mode=0o700, parents=True)
    (folder / "job.yaml").write_text(SPEC)
    monkeypatch.setenv("DISTRUN_HOME", str(home))
    script = written(distrun, "--name=-x", "--set=program.args=[--help]", cwd=folder)
    assert script.isascii()
    assert all(line.decode().isprintable() for line in script.splitlines())
    # On this machine, as there is no allocation.
    done = run(script.replace(b" --set=hosts=slurm", b""), DISTRUN_HOME="/nowhere")
    assert done.returncode == 0, done.stderr
    (job,) = (home / "jobs").iterdir()
    assert job.name.endswith("-7"), "it has become the job of Slurm's number"
    assert (job / "spec.yaml").read_text() == SPEC
    assert not list(distrun.cwd.rglob("owned"))


def test_it_imports_nothing_from_the_folder_of_the_job(
    distrun: Distrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    (distrun.cwd / "job.yaml").write_text(SPEC)
    script = written(distrun)
    for module in ("click", "distrun", "sitecustomize", "linecache"):
        owned = str(distrun.cwd / f"owned-{module}")
        (distrun.cwd / f"{module}.py").write_text(f"open({owned!r}, 'w').close()\n")
    monkeypatch.delenv("PYTHONPATH")
    for python_path in (None, "."):
        done = run(script, **({} if python_path is None else {"PYTHONPATH": python_path}))
        assert b"Traceback" not in done.stderr
        assert b"distrun: " in done.stderr
        assert not list(distrun.cwd.glob("owned*")), python_path
