"""`distrun profile` of TensorFlow, whose threads tell nobody for whom a step waits."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from harness.command import Distrun
from harness.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRAIN = """\
import os, time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()

def batches():
    while True:
        if os.environ["DISTRUN_TASK"] == "worker:1":
            time.sleep(0.2)
        yield [[1.0] * 8] * 4

batch = tf.TensorSpec((4, 8), tf.float32)
data = tf.data.Dataset.from_generator(batches, output_signature=batch)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
iterator = iter(strategy.experimental_distribute_dataset(data.with_options(options)))

@tf.function
def train_step():
    sums = strategy.run(tf.reduce_sum, args=(next(iterator),))
    return strategy.reduce("SUM", sums, axis=None)

train_step()
print("trains", flush=True)
while True:
    train_step()
"""


def test_a_slow_generator_is_what_the_others_wait_for(distrun: Distrun) -> None:
    (distrun.cwd / "train.py").write_text(TRAIN)
    distrun.detached(f"exec {shlex.quote(sys.executable)} train.py", workers=2)
    wait_until(lambda: distrun.asked("logs").count("trains") == 2, timeout=240)
    found = json.loads(distrun("profile", "--seconds", "2", "--json").stdout)
    shares = {
        task["task"]: {each["kind"]: each["share"] for each in task["kinds"]}
        for task in found["tasks"]
    }
    assert shares["worker:0"]["waiting for others"] > 0.4
    assert shares["worker:1"]["waiting for input"] > 0.4
    assert found["straggler"]["task"] == "worker:1"
    places = [each["place"] for each in found["straggler"]["reasons"]]
    assert places[0] == "batches, train.py:8"
    distrun.checked("kill")
