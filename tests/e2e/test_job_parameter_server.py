"""The job on a parameter-server cluster: SIGTERM, and the images of each worker."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython
from harness.training import MAIN, RunPython
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SPEC = """\
name: ps
strategy: parameter_server
cluster: {{chief: 1, worker: 1, ps: 1}}
program:
  script: mnist
  python: {python}
  args: [--epochs, 1, --model, cnn, --batch-size, 8, --checkpoint-dir, saved,
    --variable-partitioner, fixed_shards, --shards, 2]
"""
SAVED = re.compile(r"preempted at epoch 1, after step (\d+): saved in saved")


def test_sigterm_to_a_ps_or_to_all_saves_first(
    distrun: Distrun, preloaded: PreloadedPython, small_mnist: Path
) -> None:
    (distrun.cwd / "job.yaml").write_text(SPEC.format(python=preloaded.interpreter))
    arguments = ["--", "--data-dir", str(small_mnist), "--steps-per-epoch", "100000"]

    def launched() -> str:
        done = distrun("launch", "-d", "job.yaml", *arguments)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    def tasks(job: str) -> dict[str, dict[str, Any]]:
        status = json.loads(distrun("status", job, "--json").stdout)
        return {task["task"]: task for task in status["job"]["task_states"]}

    def trains(job: str) -> bool:
        # Reading the log costs less than asking for the status.
        log = distrun.home / "jobs" / job / "logs" / "chief-0.log"
        if not (log.exists() and re.search("^first .* after", log.read_text(), re.MULTILINE)):
            return False
        state = tasks(job)["chief:0"]
        assert state["state"] in {"starting", "running"}, distrun("status", job).stdout
        return int(state["progress"].get("STEP", 0)) > 0

    first = launched()
    wait_until(lambda: trains(first), timeout=120)
    ps = tasks(first)["ps:0"]["pid"]
    subprocess.run(["kill", "-TERM", str(ps)], check=True)
    assert distrun("wait", first, timeout=60).returncode == 42
    saved = SAVED.search(distrun("logs", first, "-t", "chief:0").stdout)
    assert saved
    assert int(saved[1]) > 0

    second = launched()
    wait_until(lambda: trains(second), timeout=120)
    assert distrun("kill", second, timeout=60).returncode == 0
    output = distrun("logs", second, "-t", "chief:0").stdout
    resumed = re.search(r"resumed from ckpt-\d+ in saved: epoch 1, after step (\d+)", output)
    assert resumed
    assert resumed[1] == saved[1]
    again = SAVED.search(output)
    assert again, output
    assert int(again[1]) > int(saved[1])


HANDED_OUT = """
import sys

import numpy as np
import tensorflow as tf

import process_data
from digits import Digits
from inputs import looked_up
from sampler import endless

images = np.arange(20 * 28 * 28, dtype=np.uint8).reshape(20, 28, 28)
labels = np.arange(20, dtype=np.uint8) % 10
digits = Digits(
    source="", train_images=images, train_labels=labels, test_images=images, test_labels=labels
)
handed = process_data.ProcessData(1, digits)


@tf.function
def first_batch():
    pixels, labels = process_data.training_images(20)
    batches = endless(20, seed=0, start=0, global_batch=5)
    mine = batches.shard(2, process_data.task_index(digits.fingerprint))
    return next(iter(looked_up(mine, pixels, labels)))


graph = first_batch.get_concrete_function().graph.as_graph_def()
largest = max(
    node.attr["value"].tensor.ByteSize()
    for nodes in (graph.node, *(function.node_def for function in graph.library.function))
    for node in nodes
)
assert largest < 200, largest  # one image has 784 bytes

batches = endless(20, seed=0, start=0, global_batch=5).take(2)
order = [int(at) for indices, _ in batches for at in indices]
pixels, labels, weights = first_batch()
assert weights.numpy().tolist() == [1.0] * 5
assert labels.numpy().tolist() == [at % 10 for at in order[5:]]
assert np.array_equal(np.rint(pixels.numpy()[..., 0] * 255).astype(np.uint8), images[order[5:]])

assert not process_data.is_shutting_down()
handed.announce_shutdown()
assert process_data.is_shutting_down()

try:
    process_data.task_index(digits.fingerprint + 1)
except tf.errors.InvalidArgumentError as error:
    assert "other data" in str(error)
else:
    sys.exit("another's data was taken for the chief's")
print("all is as it must be")
"""


def test_a_worker_trains_on_its_own_images_which_no_graph_carries(run_python: RunPython) -> None:
    assert "all is as it must be" in run_python("-c", HANDED_OUT, cwd=MAIN.parent)


SAVED_AGAIN = """
import tensorflow as tf

from asynchronous import save_with_retries
from directories import DirectoryError


def save():
    if failures:
        raise failures.pop(0)
    print("saved")


failures = [DirectoryError("a function was lost"), tf.errors.UnavailableError(None, None, "lost")]
save_with_retries(save)
failures = [DirectoryError(f"full {attempt}") for attempt in range(9)]
try:
    save_with_retries(save)
except DirectoryError as error:
    print(error)
"""


def test_a_save_that_loses_a_worker_is_tried_again_and_a_full_disk_is_told(
    run_python: RunPython,
) -> None:
    assert run_python("-c", SAVED_AGAIN, cwd=MAIN.parent) == "saved\nfull 2"
