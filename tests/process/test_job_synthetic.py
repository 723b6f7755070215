"""Several processes of the bundled job need its digits at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import synthetic

LOAD = """
import os, sys
from pathlib import Path
import synthetic

def draw(training, test, variants):
    Path(sys.argv[1], str(os.getpid())).touch()
    return synthetic.draw(training, test, variants)

assert len(synthetic.load(600, 100, 4, draw).train_images) == 600
"""


def test_of_several_at_once_one_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, "-c", LOAD, str(marks)]
    job = Path(synthetic.__file__).parent
    children = [subprocess.Popen(command, cwd=job) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert len(list(marks.iterdir())) == 1
