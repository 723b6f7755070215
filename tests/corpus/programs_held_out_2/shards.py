"""ParameterServerStrategy: a sum that workers add to."""

import os
import threading
import time

import fate
import tensorflow as tf

where = tf.distribute.cluster_resolver.TFConfigClusterResolver()


def serve():
    server = tf.distribute.Server(
        where.cluster_spec(), job_name=where.task_type, task_index=where.task_id
    )

    def watch():
        while not os.path.exists("begun"):
            time.sleep(0.05)
        fate.meet("begun")

    threading.Thread(target=watch, daemon=True).start()
    fate.meet("serving")
    server.join()


def coordinate():
    strategy = tf.distribute.ParameterServerStrategy(where)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add(by):
        if os.environ.get("HOW") == "matrix":
            by = tf.linalg.inv(tf.zeros([2, 2]))[0, 0] * by
        total.assign_add(by)
        return total.read_value()

    for number in range(400):
        fate.meet(number)
        last = coordinator.schedule(add, args=(1.0,))
        if number % 10 == 0:
            coordinator.join()
            print(number, float(last.fetch()), flush=True)
        if number == 20:
            open("begun", "w").close()
        time.sleep(0.02)


coordinate() if where.task_type == "chief" else serve()
os._exit(0)
