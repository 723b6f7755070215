"""Between-graph replication as in TensorFlow 1, with tf.compat.v1."""

import json
import os

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = tf.app.flags
flags.DEFINE_integer("steps", 20, "How many steps to train.")
FLAGS = flags.FLAGS


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    task = config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    device = tf.train.replica_device_setter(
        worker_device=f"/job:{task['type']}/task:{task['index']}", cluster=cluster
    )
    with tf.device(device):
        x = tf.placeholder(tf.float32, [None, 2])
        w = tf.get_variable("w", [2, 1])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps)]
    is_chief = task["type"] == "chief"
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=is_chief, hooks=hooks
    ) as session:
        while not session.should_stop():
            session.run(train, {x: [[1.0, 2.0]]})


if __name__ == "__main__":
    tf.app.run(main)
