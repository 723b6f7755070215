"""`distrun init` of a template whose script comes with it."""

from __future__ import annotations

from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit

import pytest

from distrun.spec.resources import examples, templates
from harness.command import Distrun


@pytest.mark.parametrize("name", examples())
def test_init_writes_a_valid_spec_and_its_script(
    distrun: Distrun, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    done = distrun("init", name, "-o", "sub/job.yaml")
    assert done.returncode == 0, done.stderr
    assert f"wrote sub/job.yaml and sub/{name}.py" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "job.yaml": templates()[name].read_bytes(),
        f"{name}.py": examples()[name].read_bytes(),
    }
    assert distrun("validate", "sub/job.yaml").returncode == 0


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


def test_init_leaves_nothing_half_written(distrun: Distrun, tmp_path: Path) -> None:
    # A file size limit acts like a full disk: the spec is shorter than it, and the script longer.
    done = distrun(
        "init", "keras_fit", preexec_fn=lambda: setrlimit(RLIMIT_FSIZE, (2000, 2000))
    )  # fmt: skip
    assert done.returncode == 69
    assert "keras_fit.py cannot be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_list_names_the_examples(distrun: Distrun) -> None:
    listed = distrun("init", "--list").stdout
    assert listed == distrun("init").stdout
    for name in examples():
        assert any(line.split()[:3] == [name, "Example", "script:"] for line in listed.splitlines())
