"""Folders of specs."""

from pathlib import Path

import pytest

from harness.parts.settings import resources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with `train.py` and the folder `src`; the one bundled job is `mnist`."""
    jobs = {"mnist": tmp_path / "bundled" / "main.py"}
    monkeypatch.setattr(resources, "bundled_jobs", lambda: jobs)
    (tmp_path / "train.py").touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").touch()
    return tmp_path
