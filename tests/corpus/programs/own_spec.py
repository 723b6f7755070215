"""A ClusterSpec that the script makes itself, without the role or index of a task (OWN)."""

import json
import os

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
cluster = {"worker": config["cluster"]["worker"]}
if os.environ["OWN"] == "short":
    cluster = {**config["cluster"], "worker": cluster["worker"][:1]}
task = config["task"]
server = tf.distribute.Server(
    tf.train.ClusterSpec(cluster), job_name=task["type"], task_index=task["index"]
)
server.join()
