"""docs/benchmarks.md is what benchmarks/page.py writes of the figures beside it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from harness.values import not_none

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page() -> Any:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks/page.py")
    module = importlib.util.module_from_spec(not_none(spec))
    not_none(not_none(spec).loader).exec_module(module)
    return module


@pytest.fixture
def figures() -> Any:
    return json.loads((ROOT / "docs/benchmarks/figures.json").read_text())


def test_the_page_is_of_the_figures(page: Any, figures: Any) -> None:
    assert page.write(figures) == (ROOT / "docs/benchmarks.md").read_text()


def test_each_goal_is_of_a_row_that_was_measured(page: Any, figures: Any) -> None:
    rows = {**figures["here"], **figures["ssh"]["rows"]}
    assert {page.LAUNCHING, *page.GOALS, *page.BOUNDS} <= rows.keys()
    assert all("distrun" in row for row in rows.values())


def test_a_goal_that_is_missed_says_what_bounds_it(page: Any, figures: Any) -> None:
    assert "| not reached |" not in page.write(figures)
