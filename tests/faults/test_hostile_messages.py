"""100,000 mutated messages of a host: none ends its supervisor or spoils the record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.hostile import run_mutated

COUNT = 100_000


@pytest.mark.timeout(3600)
def test_no_mutated_message_harms_the_supervisor(tmp_path: Path) -> None:
    first = int(os.environ.get("SEED", "1")) * COUNT
    for seed in range(first, first + COUNT):
        try:
            run_mutated(tmp_path, seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
