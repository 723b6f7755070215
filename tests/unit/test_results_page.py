"""docs/results.md is what benchmarks/results writes of the figures beside it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from harness.values import not_none

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report() -> Any:
    spec = importlib.util.spec_from_file_location("report", ROOT / "benchmarks/results/report.py")
    module = importlib.util.module_from_spec(not_none(spec))
    not_none(not_none(spec).loader).exec_module(module)
    return module


def test_the_page_is_of_the_figures(report: Any) -> None:
    figures = json.loads((ROOT / "docs/results/figures.json").read_text())
    assert report.write(figures) == (ROOT / "docs/results.md").read_text()
