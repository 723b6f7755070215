"""docs/results.md and docs/benchmarks.md are what benchmarks/ writes of the figures beside them."""

import importlib.util
import json
from pathlib import Path

import pytest

from harness.values import not_none

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("writer", "name"), [("results/report.py", "results"), ("page.py", "benchmarks")]
)
def test_the_page_is_of_the_figures(writer: str, name: str) -> None:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / writer)
    module = importlib.util.module_from_spec(not_none(spec))
    not_none(not_none(spec).loader).exec_module(module)
    figures = json.loads((ROOT / "docs" / name / "figures.json").read_text())
    page = module.write(figures)
    assert page == (ROOT / f"docs/{name}.md").read_text()
    assert "| not reached |" not in page, "a goal that is missed says what bounds it"
