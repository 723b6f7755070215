"""A minimal use of strategy.run and strategy.reduce, without a launcher."""

import contextlib

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def step():
    def replica_fn():
        context = tf.distribute.get_replica_context()
        return tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_fn), axis=None)


replicas = strategy.num_replicas_in_sync
for _ in range(3):
    total = float(step())
    assert total == replicas * (replicas + 1) / 2, total
print(f"replicas: the sum over {replicas} replicas is {total:g}")
with contextlib.suppress(tf.errors.OpError):
    step()  # when this ends, all have their last step, which an earlier exit might break
