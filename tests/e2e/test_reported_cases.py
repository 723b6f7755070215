"""What people run with TensorFlow, by their public reports: what they are told.

tests/process/test_reported_cases.py has those that need no TensorFlow.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from harness.command import Distrun
    from harness.preloaded import PreloadedPython

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

START = """import os, sys, time
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = int(os.environ["DISTRUN_RANK"])
"""
STEP = """with strategy.scope(): w = tf.Variable(1.0)
@tf.function
def step():
    return strategy.run(
        lambda: tf.distribute.get_replica_context().all_reduce("SUM", w * 2.0, **options)
    )
"""
FIT = """
with strategy.scope():
    m = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(4,)), *{layers}])
    m.compile("sgd", "mse", metrics=["mae"])
def data(n):
    pair = np.ones([n, 4], "float32"), np.ones([n, 1], "float32")
    ds = tf.data.Dataset.from_tensor_slices(pair)
    o = tf.data.Options()
    o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return ds.batch(16).with_options(o)
m.fit(data(160), epochs=1, verbose=2)
if rank == 0:
    {call}
m.fit(data(160), epochs=1, verbose=2)
"""
ONE = "tf.keras.layers.Dense(1)"


class Case(NamedTuple):
    """A program, keys of its spec, and the patterns of what is said, one after the other."""

    program: str
    told: list[str]
    keys: str = ""
    env: str = "TF_USE_LEGACY_KERAS: 1"
    not_told: str = "Traceback: none"
    workers: int = 2


CASES = {
    "chief saves": Case(
        START
        + FIT.format(
            layers=f"[tf.keras.layers.BatchNormalization(), {ONE}]", call="m.save('a.keras')"
        ),
        [r"try +train\.py:17 calls save for some of the tasks only, and all must make that call"],
    ),
    "chief evaluates": Case(
        START + FIT.format(layers=f"[{ONE}]", call="m.evaluate(data(64), verbose=2)"),
        [r"try +train\.py:17 calls evaluate for some of the tasks only, and all must make that"],
    ),
    "chief reduces": Case(
        START + "options = {}\n" + STEP + "for i in range(9): step(); print('step', i)\n"
        "def report(): strategy.reduce('SUM', strategy.run(lambda: w * 2.0), axis=None)\n"
        "if rank == 0: report()\n",
        [
            "cause +worker:1 exited 0 while the others still needed it",
            r"try +train\.py:14 calls report for some of the tasks only",
        ],
    ),
    "late for a collective": Case(
        START + "options = {'options': tf.distribute.experimental.CommunicationOptions(\n"
        "    timeout_seconds=5.0)}\n"
        + STEP
        + "for i in range(9):\n    if rank == 1 and i == 4: time.sleep(30)\n    step()\n"
        "    print('step', i, flush=True)\n",
        [
            "cause +worker:1 came too late to a collective, or never: worker:0 waited until the",
            r"worker:0 at step 3; worker:1 at step 3; the limit is 5 s, timeout_seconds at train",
            r"\(unresponsive\)",
        ],
        not_told="do not match",
    ),
    "one file for two workers": Case(
        START + "path = f'{rank}.tfrecord'\n"
        "with tf.io.TFRecordWriter(path) as file: [file.write(b'a') for _ in range(20)]\n"
        "ds = tf.data.TFRecordDataset([path]).batch(4)\no = tf.data.Options()\n"
        "o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE\n"
        "for x in strategy.experimental_distribute_dataset(ds.with_options(o)): print(x)\n",
        ["cause .*FILE based sharding", r"the `experimental_distribute\.auto_shard_policy` option"],
    ),
    "forks after the start": Case(
        START + "import multiprocessing as mp\n"
        "def decode(i): return float(tf.reduce_sum(tf.random.normal([2000, 2000])))\n"
        "print(decode(0))\n"
        "with mp.get_context('fork').Pool(2) as p: print(p.map(decode, range(4)))\n",
        [
            "cause +no progress within timeouts.stall",
            r"train\.py:8 made by fork, .*multiprocessing\.get_context\(\"spawn\"\)",
        ],
        "timeouts: {stall: 40s}\n",
        env="TF_NUM_INTRAOP_THREADS: 2",  # one thread may compute all by itself
    ),
    "sigterm, exit 0": Case(
        START + "import signal, subprocess\noptions = {}\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('caught SIGTERM, saved')))\n"
        + STEP
        + "for i in range(400):\n    step(); print('step', i, flush=True); time.sleep(0.02)\n"
        "    if rank == 1 and i == 30: os.kill(os.getpid(), signal.SIGTERM)\n",
        [r"cause +worker:1 was preempted: it exited 0 \(preempted\)", "caught SIGTERM, saved"],
    ),
    "connects before the strategy": Case(
        START.replace(
            "strategy =",
            "resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
            "tf.config.experimental_connect_to_cluster(resolver)\nstrategy =",
        ),
        [
            r"train\.py:4:1: warning: each task waits here for servers that only the strategy",
            "job train",
        ],
        "timeouts: {stall: 8s}\n",
    ),
    "a name that Keras 3 lacks": Case(
        "import tensorflow as tf\ntf.keras.optimizers.legacy.Adam(1e-3)\n",
        [r"has code for Keras 2, but runs with Keras 3.*\(keras3\)", "program.keras: 2"],
        env="",
        workers=1,
    ),
    "a name that TensorFlow 2 has replaced": Case(
        START + "strategy.experimental_run_v2(lambda: tf.constant(1))\n",
        [r"experimental_run_v2.*`?run`?"],
        workers=1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told(
    name: str, distrun: Distrun, preloaded: PreloadedPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    case = CASES[name]
    # A fork of the preloaded interpreter does not print its stacks.
    python = sys.executable if "forks" in name else preloaded.interpreter
    (distrun.cwd / "train.py").write_text(case.program)
    (distrun.cwd / "train.yaml").write_text(
        f"strategy: multi_worker_mirrored\ncluster: {{worker: {case.workers}}}\n{case.keys}"
        f"program: {{script: train.py, python: {python}, env: {{{case.env}}}}}\n"
    )
    done = distrun("launch", "train.yaml", timeout=200)
    assert done.returncode != 0, done.stderr
    assert re.search(".*".join(case.told), done.stderr, re.DOTALL), done.stderr
    assert not re.search(case.not_told, done.stderr), done.stderr
