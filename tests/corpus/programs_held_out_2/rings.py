"""MultiWorkerMirroredStrategy and collectives written out."""

import json
import os

import fate

if os.environ.get("CLUSTER") == "grown" and fate.IS_VICTIM:
    config = json.loads(os.environ["TF_CONFIG"])
    config["cluster"]["worker"].append("localhost:5999")
    os.environ["TF_CONFIG"] = json.dumps(config)

import tensorflow as tf

if os.environ.get("CLUSTER") == "early" and fate.IS_VICTIM:
    table = tf.one_hot([1, 2], 3)
    print(table.shape)
if os.environ.get("CLUSTER") == "chiefless":
    where = json.loads(os.environ["TF_CONFIG"])
    spec = tf.train.ClusterSpec({"worker": where["cluster"]["worker"]})
    server = tf.distribute.Server(
        spec, job_name=where["task"]["type"], task_index=where["task"]["index"]
    )
    print("serving", server.target)
    fate.freeze()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
replica = tf.distribute.get_replica_context
HOW = os.environ.get("HOW", "")
ODD = fate.IS_VICTIM


def clipped(values):
    limit = tf.shape(values)[0] + (3 if ODD and HOW == "gather" else 0)
    if HOW == "raise" and ODD:
        raise fate.QuotaError("no limit for tensors of rank " + str(values.shape.rank))
    return tf.gather(values, limit - 1)


@tf.function
def ordinary(values):
    def one(values):
        values = tf.identity(values)
        last = clipped(values)
        if HOW == "finite" and ODD:
            values = tf.debugging.check_numerics(tf.math.log(values - 5.0), "logits")
        total = replica().all_reduce(tf.distribute.ReduceOp.SUM, values)
        return tf.reduce_sum(total) + last

    return strategy.run(one, args=(values,))


@tf.function
def gathered(values):
    def one(values):
        return replica().all_gather(tf.identity(values), axis=0)

    return strategy.run(one, args=(values,))


data = iter(tf.data.Dataset.range(4 if HOW == "short" and ODD else 30).batch(2))
for number in range(6):
    fate.meet(number)
    batch = tf.cast(data.get_next() if HOW == "short" else next(data), tf.float32)
    if HOW == "size" and ODD and number == 3:
        batch = batch[:1]
    if HOW == "rank" and ODD and number == 2:
        batch = tf.stack([batch, batch])
    if HOW == "kind" and ODD and number == 1:
        batch = tf.cast(batch, tf.float64)
    if HOW == "other" and ODD and number == 2:
        print(number, gathered(batch), flush=True)
        continue
    result = ordinary(batch)
    print(number, float(strategy.experimental_local_results(result)[0]), flush=True)
