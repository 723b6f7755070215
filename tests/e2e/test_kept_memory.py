"""Training with freed memory kept, and without, in processes of their own."""

import json
from pathlib import Path

import pytest

from harness.command import Distrun


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_the_loss_is_the_same_to_the_last_digit(
    distrun: Distrun, small_mnist: Path, tmp_path: Path
) -> None:
    losses = {}
    for memory in ("keep", "system"):
        job = {
            "strategy": "default",
            "program": {
                "script": "mnist",
                "memory": memory,
                "args": ["--data-dir", str(small_mnist), "--epochs", 1, "--steps-per-epoch", 8],
            },
        }
        spec = tmp_path / f"{memory}.yaml"
        spec.write_text(json.dumps(job))
        done = distrun("launch", spec, timeout=240)
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in distrun("events", "--json").stdout.splitlines()]
        told = [each["values"]["LOSS"] for each in events if "LOSS" in each.get("values", {})]
        losses[memory] = told[-1]
    assert losses["keep"] == losses["system"]
