"""What people run with TensorFlow, by their public reports: what they are told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.command import Distrun
from harness.preloaded import PreloadedPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

START = """import os, sys, time
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = int(os.environ["DISTRUN_RANK"])
"""
CASES = {
    "chief evaluates": (
        START
        + """with strategy.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    m.compile("sgd", "mse", metrics=["mae"])
def data(n):
    pair = np.ones([n, 4], "float32"), np.ones([n, 1], "float32")
    ds = tf.data.Dataset.from_tensor_slices(pair)
    o = tf.data.Options()
    o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return ds.batch(16).with_options(o)
m.fit(data(160), epochs=1, verbose=2)
if rank == 0:
    m.evaluate(data(64), verbose=2)
m.fit(data(160), epochs=1, verbose=2)
""",
        r"try +train\.py:16 calls evaluate for some of the tasks only, and all must make that call",
    ),
    "one file for two workers": (
        START
        + """path = f'{rank}.tfrecord'
with tf.io.TFRecordWriter(path) as file: [file.write(b'a') for _ in range(20)]
ds = tf.data.TFRecordDataset([path]).batch(4)
o = tf.data.Options()
o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
for x in strategy.experimental_distribute_dataset(ds.with_options(o)): print(x)
""",
        "cause .*FILE based sharding.*the `experimental_distribute.auto_shard_policy` option",
    ),
    "sigterm, exit 0": (
        START
        + """import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('caught SIGTERM, saved')))
@tf.function
def step():
    return strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(2.0))
    )
for i in range(400):
    step(); print('step', i, flush=True); time.sleep(0.02)
    if rank == 1 and i == 30: os.kill(os.getpid(), signal.SIGTERM)
""",
        r"cause +worker:1 was preempted: it exited 0 \(preempted\).*caught SIGTERM, saved",
    ),
    "a name that TensorFlow 2 has replaced": (
        START + "strategy.experimental_run_v2(lambda: tf.constant(1))\n",
        "experimental_run_v2.*`?run`?",
    ),
}
"""A program, and the pattern of what is said."""


@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told(
    name: str, distrun: Distrun, preloaded: PreloadedPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    script, told = CASES[name]
    (distrun.cwd / "train.py").write_text(script)
    (distrun.cwd / "train.yaml").write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\nprogram:\n"
        f"  {{script: train.py, python: {preloaded.interpreter}, keras: 2}}\n"
    )
    done = distrun("launch", "train.yaml", timeout=200)
    assert done.returncode != 0, done.stderr
    assert re.search(told, done.stderr, re.DOTALL), done.stderr


TUTORIAL = Path(__file__).parent / "plain" / "tutorial.py"
KEYS = "strategy: multi_worker_mirrored"


@pytest.fixture
def launch(distrun: Distrun, preloaded: PreloadedPython) -> Callable[..., Any]:
    """Launch the tutorial's script by so many workers, with more keys for it."""

    def run(workers: int, more: str = "") -> Any:
        program = f"{{script: {TUTORIAL}, python: {preloaded.interpreter}{more}}}"
        cluster = f"cluster: {{worker: {workers}}}"
        (distrun.cwd / "job.yaml").write_text(f"{KEYS}\n{cluster}\nprogram: {program}\n")
        return distrun("launch", "job.yaml", timeout=200)

    return run


def test_the_published_multi_worker_tutorial_with_keras_2(launch: Callable[..., Any]) -> None:
    done = launch(2, ", keras: 2")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | Epoch: 0 loss is a number: True" in done.stdout
        assert f"{worker} | tutorial: epochs 2 steps 8" in done.stdout
    assert "program.keras" not in done.stderr


def test_the_tutorials_advice_with_keras_3(distrun: Distrun, launch: Callable[..., Any]) -> None:
    done = launch(1)
    assert done.returncode == 1
    assert "Epoch: 0 loss is a number: True" in done.stdout
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    told = r"tutorial\.py:77:5: .* reset_states.*: write program\.keras: 2 \(.*\)$"
    assert re.search(told, warning)
    assert distrun.status()["verdict"]["kind"] == "keras3"
    assert re.search(r"set `program\.keras: 2` \(.*\) and install tf_keras", done.stderr)
