"""Scripts like those of TensorFlow's tutorials, which do not know distrun.

The third, `replicas.py`, is also the script that test_templates.py puts beside `script.yaml`.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PLAIN = Path(__file__).parent / "plain"


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython) -> Callable[..., str]:
    """Run a script successfully; returns the output of its tasks."""

    def run(script: str, strategy: str, cluster: str, env: str = "{}") -> str:
        (distrun.cwd / "job.yaml").write_text(
            f"strategy: {strategy}\ncluster: {cluster}\n"
            f"program: {{script: {PLAIN / script}, python: {preloaded.interpreter}, env: {env}}}\n"
        )
        done = distrun("launch", "job.yaml", timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    return run


def test_keras_fit_with_model_checkpoint(distrun: Distrun, launch: Callable[..., str]) -> None:
    output = launch("fit.py", "multi_worker_mirrored", "{worker: 2}", "{TF_USE_LEGACY_KERAS: 1}")
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | fit: epochs 2 steps 8" in output
    saved = {path.name for path in (distrun.cwd / "ckpt").iterdir()}
    assert {"checkpoint", "weights-1.index", "weights-2.index"} <= saved
    assert not [name for name in saved if "temp" in name]


def test_coordinator_with_servers_that_join(launch: Callable[..., str]) -> None:
    output = launch("coordinator.py", "parameter_server", "{chief: 1, worker: 2, ps: 2}")
    assert "chief:0  | coordinator: steps 31 shards 2" in output


def test_run_and_reduce_with_a_chief(launch: Callable[..., str]) -> None:
    # test_templates.py runs it without a chief (`distrun init script`).
    output = launch("replicas.py", "multi_worker_mirrored", "{chief: 1, worker: 2}")
    for task in ("chief:0 ", "worker:0", "worker:1"):
        assert f"{task} | replicas: the sum over 3 replicas is 6" in output


@pytest.mark.parametrize(
    ("cluster", "decides"),
    [("{worker: 2, ps: 1}", "worker:0"), ("{chief: 1, worker: 2, ps: 1}", "chief:0")],
)
def test_workers_that_train_by_themselves(
    distrun: Distrun, launch: Callable[..., str], cluster: str, decides: str
) -> None:
    """TensorFlow 1's between-graph replication; distrun ends the ps when the deciding task has."""
    output = launch("between_graph.py", "parameter_server\nworkers: independent", cluster)
    assert re.search(
        rf"^{decides} +\| between-graph: {decides} ended at step", output, re.MULTILINE
    )
    # Workers that are in the middle of a step at step 200 still count it.
    assert list((distrun.cwd / "ckpt").glob("model.ckpt-20[0-9].index"))
    tasks = json.loads(distrun("status", "--json").stdout)["job"]["tasks"]
    states = {task["task"]: (task["state"], task["attempt"]) for task in tasks}
    assert states[decides] == ("succeeded", 0)
    assert states["ps:0"] == ("stopped", 0)
    assert not {"failed"} & {state for state, _ in states.values()}


def launch_tutorial(distrun: Distrun, python: str, keras: str) -> subprocess.CompletedProcess[str]:
    """Run TensorFlow's tutorial. tf.keras chooses its version when a fork uses it first."""
    (distrun.cwd / "job.yaml").write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\n"
        f"program: {{script: {PLAIN / 'tutorial.py'}, python: {python}{keras}}}\n"
    )
    return distrun("launch", "job.yaml", timeout=200)


def test_the_published_multi_worker_tutorial_with_keras_2(
    distrun: Distrun, preloaded: PreloadedPython
) -> None:
    done = launch_tutorial(distrun, preloaded.interpreter, ", keras: 2")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | Epoch: 0 loss is a number: True" in done.stdout
        assert f"{worker} | tutorial: epochs 2 steps 8" in done.stdout
    assert "program.keras" not in done.stderr


@pytest.mark.parametrize("keras", ["", ", keras: 3"])
def test_the_advice_on_the_tutorial_with_keras_3_is_the_key(
    distrun: Distrun, preloaded: PreloadedPython, keras: str
) -> None:
    done = launch_tutorial(distrun, preloaded.interpreter, keras)
    assert done.returncode == 1
    assert "Epoch: 0 loss is a number: True" in done.stdout
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    assert "tutorial.py:77:5" in warning
    assert "reset_states" in warning
    assert "write program.keras: 2, and pip install tf_keras" in warning
    verdict = json.loads(distrun("status", "--json").stdout)["job"]["verdict"]
    assert verdict["kind"] == "keras3"
    assert "set `program.keras: 2` and install tf_keras" in done.stderr
