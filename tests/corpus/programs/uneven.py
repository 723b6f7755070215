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


if faults.WHAT == "for":
    for sample in data:
        print("sum", float(step(sample)), flush=True)
else:
    iterator = iter(data)
    for _ in range(12):
        sample = next(iterator) if faults.WHAT == "next" else iterator.get_next()
        print("sum", float(step(sample)), flush=True)
print("done")
