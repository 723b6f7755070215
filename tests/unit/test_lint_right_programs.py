"""Programs that are right get no warning: those of this repository, and others in other styles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrun.lint.check import check_program
from distrun.spec import resources
from distrun.spec.loader import load
from distrun.spec.target import Target
from harness.requirements import need_tensorflow

ROOT = Path(__file__).resolve().parents[2]
RIGHT = Path(__file__).parent / "right_programs"
PLAIN = ROOT / "tests" / "e2e" / "plain"
EXAMPLES = ROOT / "jobs" / "examples"
MWM = "multi_worker_mirrored, cluster: {worker: 2}"
PS = "parameter_server, cluster: {chief: 1, worker: 2, ps: 2}"
NO_CHIEF = "parameter_server, cluster: {worker: 2, ps: 1}"
INDEPENDENT = f"{PS}, workers: independent"


@pytest.mark.parametrize(
    ("strategy", "program"),
    [
        (MWM, f"script: {PLAIN}/tutorial.py, env: {{TF_USE_LEGACY_KERAS: 1}}"),
        (MWM, f"script: {PLAIN}/tutorial.py, keras: 2"),
        ("mirrored", f"script: {EXAMPLES}/custom_loop.py"),
        (MWM, f"script: {EXAMPLES}/keras_fit.py"),
        (PS, f"script: {EXAMPLES}/parameter_server.py"),
        ("mirrored", f"script: {EXAMPLES}/data_service.py"),
        (PS, "script: mnist"),
        (MWM, f"script: {RIGHT}/class_based.py"),
        (MWM, f"script: {RIGHT}/chosen_by_argument.py"),
        (NO_CHIEF, f"script: {PLAIN}/between_graph.py"),
        (INDEPENDENT, f"script: {PLAIN}/between_graph.py"),
        (PS, f"module: trainer.main, workdir: {RIGHT}"),
        (PS, f"command: [{sys.executable}, -u, -m, trainer.main], workdir: {RIGHT}"),
    ],
)
def test_a_right_program_has_no_warning(
    strategy: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tensorflow()
    # A launch does not read the bundled jobs; here they are checked like others.
    monkeypatch.setattr(Target, "is_bundled", False)
    python = "" if "command" in program else f", python: {sys.executable}"
    spec = f"{{strategy: {strategy}, program: {{{program}{python}}}}}"
    (tmp_path / "job.yaml").write_text(spec)
    assert check_program(load(tmp_path / "job.yaml")) == ()


@pytest.mark.parametrize("name", sorted(resources.templates()))
def test_a_template_has_no_warning(name: str, tmp_path: Path) -> None:
    need_tensorflow()
    spec = tmp_path / "job.yaml"
    spec.write_text(resources.templates()[name].read_text())
    examples = resources.examples()
    if name in examples:
        (tmp_path / examples[name].name).write_text(examples[name].read_text())
    (tmp_path / "train.py").write_text((PLAIN / "replicas.py").read_text())
    assert check_program(load(spec)) == ()
