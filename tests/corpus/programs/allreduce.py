"""MultiWorkerMirroredStrategy with a loop of its own."""

import faults

faults.at("start")
import tensorflow as tf

faults.at("imported")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(tf.zeros([16]))


@tf.function
def step():
    def replica():
        gradient = tf.random.normal([16])
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        return tf.reduce_sum(total)

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica), axis=None)


for number in range(8):
    faults.at(number)
    print("step", number, "loss", float(step()), flush=True)
faults.at("end")
print("done")
