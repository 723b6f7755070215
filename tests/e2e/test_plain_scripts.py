"""Scripts in the manner of TensorFlow's own tutorials, which know nothing of distrun.

The third of them, `replicas.py`, is the script that test_templates.py puts beside `script.yaml`.
"""

from pathlib import Path

import pytest

from harness.command import Distrun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"


def launch(distrun: Distrun, script: str, strategy: str, cluster: str, env: str = "{}") -> str:
    """Runs it to its success, and returns what its tasks printed."""
    (distrun.cwd / "job.yaml").write_text(
        f"strategy: {strategy}\ncluster: {cluster}\n"
        f"program: {{script: {PLAIN / script}, env: {env}}}\n"
    )
    done = distrun("launch", "job.yaml", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_keras_fit_with_model_checkpoint(distrun: Distrun) -> None:
    output = launch(
        distrun, "fit.py", "multi_worker_mirrored", "{worker: 2}", "{TF_USE_LEGACY_KERAS: 1}"
    )
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | fit: epochs 2 steps 8" in output
    saved = {path.name for path in (distrun.cwd / "ckpt").iterdir()}
    assert {"checkpoint", "weights-1.index", "weights-2.index"} <= saved
    assert not [name for name in saved if "temp" in name]


def test_coordinator_with_servers_that_join(distrun: Distrun) -> None:
    output = launch(distrun, "coordinator.py", "parameter_server", "{chief: 1, worker: 2, ps: 2}")
    assert "chief:0  | coordinator: steps 31 shards 2" in output


def test_run_and_reduce_with_a_chief(distrun: Distrun) -> None:
    # Workers alone: `distrun init script` has them, in test_templates.py.
    output = launch(distrun, "replicas.py", "multi_worker_mirrored", "{chief: 1, worker: 2}")
    for task in ("chief:0 ", "worker:0", "worker:1"):
        assert f"{task} | replicas: the sum over 3 replicas is 6" in output
