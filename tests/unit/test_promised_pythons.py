"""Everything that names the Pythons that distrun promises names the same ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = re.compile(r"\b3\.(\d+)\b")


def classifiers() -> list[str]:
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)


def test_pages_promise_them() -> None:
    wanted = f"Python {classifiers()[0]} to {classifiers()[-1]}"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    found = {}
    for page in pages:
        text = " ".join(page.read_text().split())
        found[str(page.relative_to(ROOT))] = set(re.findall(r"Python 3\.\d+ to 3\.\d+", text))
    assert found["README.md"] == found["CONTRIBUTING.md"] == {wanted}
    assert set().union(*found.values()) == {wanted}


def test_the_scripts_read_them_from_pyproject() -> None:
    asked = ["sh", str(ROOT / "scripts" / "pythons.sh"), "--promised"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == classifiers()


@pytest.mark.parametrize("name", ["scripts/venv.sh", ".ci/run"])
def test_a_script_has_no_list_of_its_own(name: str) -> None:
    path = ROOT / name
    if not path.exists():  # in a source distribution
        pytest.skip(f"no {name} here")
    text = path.read_text()
    assert "scripts/pythons.sh" in text
    assert not VERSION.search(text)
