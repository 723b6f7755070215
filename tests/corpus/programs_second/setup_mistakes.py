"""Mistakes in how a cluster is set up, other than those of the first part."""

import json
import os

MISTAKE = os.environ["MISTAKE"]
ME = os.environ["DISTRUN_TASK"]
config = json.loads(os.environ["TF_CONFIG"])
if MISTAKE == "hard_coded" and ME == "worker:1":
    config["cluster"]["worker"] = ["localhost:29871", "localhost:29872"]
if MISTAKE == "all_first":
    config["task"] = {"type": "worker", "index": 0}
if MISTAKE == "no_such_index" and ME == "worker:2":
    config["task"]["index"] = 7
if MISTAKE == "one_left_out" and ME == "worker:0":
    config["cluster"]["worker"].pop()
if MISTAKE == "list" and ME == "worker:0":
    config["cluster"] = config["cluster"]["worker"]
os.environ["TF_CONFIG"] = json.dumps(config)
if MISTAKE == "cut_off" and ME == "worker:0":
    os.environ["TF_CONFIG"] = json.dumps(config)[:-5]

import tensorflow as tf

if MISTAKE == "variable_first":
    weight = tf.Variable(1.0)
if MISTAKE == "data_first" and ME == "worker:0":
    for each in tf.data.Dataset.range(2):
        print(each)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("replicas", strategy.num_replicas_in_sync, flush=True)


@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))

    return strategy.reduce("mean", strategy.run(one), axis=None)


for _ in range(3):
    print(total().numpy(), flush=True)
