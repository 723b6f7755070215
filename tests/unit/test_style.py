"""The checks of `make lint` are tests too: they run beside the others, on every core."""

import sys
from pathlib import Path

import pytest

from harness.processes import captured


@pytest.mark.parametrize("command", ["mypy", "ruff check .", "ruff format --check ."])
def test_nothing_is_found_by(command: str) -> None:
    words = [sys.executable, "-m", *command.split()]
    done = captured(words, cwd=Path(__file__).resolve().parents[2], timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
