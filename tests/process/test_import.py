"""A converted TFJob runs on this machine. In pods: tests/kubernetes/test_launch.py."""

from __future__ import annotations

from harness import tfjobs
from harness.command import Distrun


def test_a_tfjob_runs_on_this_machine_and_its_servers_end_with_it(distrun: Distrun) -> None:
    (distrun.cwd / "tfjob.yaml").write_text(tfjobs.manifest("i:1"))
    distrun.checked("import", "tfjob.yaml", "-o", "job.yaml")
    done = distrun.checked("launch", "job.yaml", "--set", "hosts=[localhost]")
    assert sorted(done.stdout.splitlines()) == tfjobs.OUTPUT
