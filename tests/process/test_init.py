"""`distrun init` of a template whose script comes with it."""

from __future__ import annotations

from pathlib import Path

from distrun.spec.resources import examples, templates
from harness.command import Distrun


def test_init_writes_a_valid_spec_and_its_script(distrun: Distrun, tmp_path: Path) -> None:
    listed = distrun("init", "--list").stdout
    for name, script in examples().items():
        assert any(line.split()[:3] == [name, "Example", "script:"] for line in listed.splitlines())
        folder = tmp_path / name
        folder.mkdir()
        done = distrun("init", name, "-o", f"{name}/job.yaml")
        assert done.returncode == 0, done.stderr
        assert f"wrote {name}/job.yaml and {name}/{name}.py" in done.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            "job.yaml": templates()[name].read_bytes(),
            f"{name}.py": script.read_bytes(),
        }
        assert distrun("validate", f"{name}/job.yaml").returncode == 0


def test_init_overwrites_nothing_unless_told_to(distrun: Distrun, tmp_path: Path) -> None:
    mine = "keras_fit.py"
    (tmp_path / mine).write_text("mine")
    done = distrun("init", "keras_fit")
    assert done.returncode == 2
    assert f"{mine} exists already" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [mine], "it has written the other file"
    assert (tmp_path / mine).read_text() == "mine"
    assert distrun("init", "keras_fit", "--force").returncode == 0
    assert (tmp_path / "keras_fit.py").read_bytes() == examples()["keras_fit"].read_bytes()
    assert (tmp_path / "keras_fit.yaml").read_bytes() == templates()["keras_fit"].read_bytes()
