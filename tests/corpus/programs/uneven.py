"""Each worker reads a dataset of its own, and one of them is shorter."""

import faults
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = tf.data.Dataset.range(4 if faults.ME == faults.WHO else 12)


@tf.function
def step(number):
    def replica(value):
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.cast(value, tf.float32)
        )

    return strategy.run(replica, args=(number,))


iterator = iter(data)
for _ in range(12):
    print("sum", float(step(next(iterator))), flush=True)
print("done")
