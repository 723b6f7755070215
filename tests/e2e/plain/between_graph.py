"""Between-graph replication as in TensorFlow 1: each worker trains by itself; no launcher."""

import json
import os
import sys

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()

config = json.loads(os.environ["TF_CONFIG"])
job_name, task_index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=job_name, task_index=task_index)
if job_name == "ps":
    server.join()

is_chief = job_name == "chief" or ("chief" not in config["cluster"] and task_index == 0)
place = tf.train.replica_device_setter(
    worker_device=f"/job:{job_name}/task:{task_index}", cluster=cluster
)
with tf.device(place):
    weights = tf.get_variable("weights", [4, 1], initializer=tf.zeros_initializer())
    x = tf.random.uniform([16, 4])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - tf.reduce_sum(x, 1, keepdims=True)))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)

print(f"between-graph: {job_name}:{task_index} starts", flush=True)
with tf.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=is_chief,
    checkpoint_dir="ckpt",
    hooks=[tf.train.StopAtStepHook(last_step=int(sys.argv[1]) if len(sys.argv) > 1 else 200)],
) as session:
    reached = 0
    while not session.should_stop():
        _, reached = session.run([train, step])
print(f"between-graph: {job_name}:{task_index} ended at step {reached}", flush=True)
