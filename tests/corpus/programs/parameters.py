"""ParameterServerStrategy with a loop of its own."""

import os

import faults

faults.at("start")
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    import threading
    import time

    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    if faults.ME == faults.WHO:

        def watch():
            while not os.path.exists("trained"):
                time.sleep(0.05)
            faults.at("trained")

        if faults.WHAT.startswith(("sig", "exit")):
            threading.Thread(target=watch, daemon=True).start()
        else:
            watch()
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(tf.zeros([4]))


@tf.function
def step():
    def replica():
        weight.assign_add(tf.ones([4]))
        return tf.reduce_sum(weight)

    return strategy.run(replica)


for number in range(2000):
    faults.at(number)
    done = coordinator.schedule(step)
    if number % 10 == 0:
        coordinator.join()
        print("step", number, "sum", float(done.fetch()), flush=True)
    if number == 20:
        open("trained", "w").close()
coordinator.join()
print("done")
