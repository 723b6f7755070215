"""The checks of `make lint` are tests too: they run beside the others, on every core."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", ["mypy", "ruff check .", "ruff format --check ."])
def test_nothing_is_found_by(command: str) -> None:
    words = [sys.executable, "-m", *command.split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
