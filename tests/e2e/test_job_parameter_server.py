"""The job on a parameter-server cluster: SIGTERM, and the images of each worker."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.training import MAIN, RunPython
from harness.values import not_none
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SPEC = """\
name: ps
strategy: parameter_server
cluster: {{chief: 1, worker: 1, ps: 1}}
program:
  script: mnist
  python: {python}
  args: [--epochs, 1, --model, cnn, --batch-size, 8, --checkpoint-dir, saved]
"""
SAVED = re.compile(r"preempted at epoch 1, after step (\d+): saved in saved")


def test_sigterm_to_a_ps_or_to_all_saves_first(
    distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path
) -> None:
    (distrun.cwd / "job.yaml").write_text(SPEC.format(python=preloaded.interpreter))
    arguments = ["--", "--data-dir", str(small_mnist), "--steps-per-epoch", "100000"]

    def launched(*more: str) -> str:
        done = distrun.checked("launch", "-d", "job.yaml", *arguments, *more)
        return str(done.stdout.strip())

    def tasks(job: str) -> dict[str, dict[str, Any]]:
        return {task["task"]: task for task in distrun.status(job)["tasks"]}

    def trains(job: str) -> bool:
        # Reading the log costs less than asking for the status.
        log = distrun.home / "jobs" / job / "logs" / "chief-0.log"
        if not (log.exists() and re.search("^first .* after", log.read_text(), re.MULTILINE)):
            return False
        state = tasks(job)["chief:0"]
        assert state["state"] in {"starting", "running"}, distrun.asked("status", job)
        return int(state["progress"].get("STEP", 0)) > 0

    first = launched()
    wait_until(lambda: trains(first), timeout=120)
    os.kill(tasks(first)["ps:0"]["pid"], signal.SIGTERM)
    assert distrun("wait", first, timeout=60).returncode == 42
    saved = not_none(SAVED.search(distrun.asked("logs", first, "-t", "chief:0")))
    assert int(saved[1]) > 0

    second = launched("--loop", "fit")
    wait_until(lambda: trains(second), timeout=120)
    distrun.checked("kill", second, timeout=60)
    output = distrun.asked("logs", second, "-t", "chief:0")
    resumed = re.search(r"resumed from ckpt-\d+ in saved: epoch 1, after step (\d+)", output)
    assert not_none(resumed)[1] == saved[1]
    assert int(not_none(SAVED.search(output))[1]) > int(saved[1])


OWN_ORDER = """
import os
import time
from types import SimpleNamespace

from mnist_job.launcher import SigtermWatch

watch = SigtermWatch()
import numpy as np
import tensorflow as tf

from mnist_job import parameter_server
from mnist_job.data import DataSet

count = 300
images = np.zeros((count, 28, 28), np.uint8)
images[:, 0, 0], images[:, 0, 1] = np.arange(count) % 256, np.arange(count) // 256
labels = (np.arange(count) % 10).astype(np.uint8)
data = DataSet(
    name="", source="", train_images=images, train_labels=labels, test_images=images,
    test_labels=labels,
)
chief = SimpleNamespace(data=data, global_batch_size=50, options=SimpleNamespace(seed=0))


@tf.function
def first_pass():
    # As ClusterCoordinator: the same graph on each worker, and again on one that was restarted.
    iterator = iter(parameter_server.ParameterServerLoop.dataset_fn(chief, None))
    return [next(iterator) for _ in range(14)]


graph = first_pass.get_concrete_function().graph.as_graph_def()
nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
largest = max(node.attr["value"].tensor.ByteSize() for node in nodes)
assert largest < 5_000, largest  # sent packed: the images have 235,200 bytes

orders = []
for _ in range(3):
    order = []
    for pixels, labels, weights, own in first_pass():
        at = np.rint(pixels.numpy()[:, 0, :2, 0] * 255).astype(int)
        order += (at[:, 0] + 256 * at[:, 1]).tolist()
        assert labels.numpy().tolist() == [each % 10 for each in order[-50:]]
        assert weights.numpy().tolist() == own.numpy().tolist() == [1.0] * 50
    assert len(set(order)) == count, "14 batches have a whole permutation"
    orders.append(order)
assert orders[0] != orders[1] != orders[2] != orders[0], "each worker has an order of its own"

print("all is as it must be")
"""


def test_a_workers_data_are_packed_and_begin_anew_nowhere(run_python: RunPython) -> None:
    assert "all is as it must be" in run_python("-c", OWN_ORDER, cwd=MAIN.parent)


SAVED_AGAIN = """
import tensorflow as tf

from mnist_job import loop, parameter_server
from mnist_job import JobError


def save(_):
    if failures:
        raise failures.pop(0)
    print("saved")


loop.Loop.save = save
chief = object.__new__(parameter_server.ParameterServerLoop)
failures = [JobError("a function was lost"), tf.errors.UnavailableError(None, None, "lost")]
chief.save()
failures = [JobError(f"full {attempt}") for attempt in range(9)]
try:
    chief.save()
except JobError as error:
    print(error)
"""


def test_a_save_that_loses_a_worker_is_tried_again_and_a_full_disk_is_told(
    run_python: RunPython,
) -> None:
    assert run_python("-c", SAVED_AGAIN, cwd=MAIN.parent) == "saved\nfull 2"
