"""ParameterServerStrategy without Keras or a data set: weights of a bandit's arms."""

import os

import mishap

mishap.point("top")
import tensorflow as tf

where = tf.distribute.cluster_resolver.TFConfigClusterResolver()
kind = where.task_type


def stand_by():
    server = tf.distribute.Server(
        where.cluster_spec(), job_name=kind, task_index=where.task_id, protocol="grpc"
    )
    if mishap.STRUCK and mishap.PLAN["where"] == "standing":
        import time

        while not os.path.exists("pulled"):
            time.sleep(0.03)
        mishap.point("standing")
    mishap.after("pulled")
    server.join()


def play():
    strategy = tf.distribute.ParameterServerStrategy(where)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        values = tf.Variable(tf.zeros([10]))

    @tf.function
    def pull():
        def one():
            arm = tf.random.uniform([], 0, 10, dtype=tf.int32)
            reward = tf.random.normal([], tf.cast(arm, tf.float32))
            values.assign_add(0.1 * tf.one_hot(arm, 10) * (reward - values[arm]))
            return reward

        return strategy.run(one)

    for number in range(900):
        mishap.point(number)
        result = coordinator.schedule(pull)
        if number % 8 == 0:
            coordinator.join()
            print("pull", number, "reward", float(result.fetch()), flush=True)
        if number == 32:
            open("pulled", "w").close()


play() if kind == "chief" else stand_by()
os._exit(0)
